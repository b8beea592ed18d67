"""Settings become a runner with a pool of the asked size, or one sentence that says why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from runtime.engine.model.config import config_from_json
from runtime.engine.model.errors import ModelError
from runtime.engine.model.partition import head_part
from runtime.engine.ranks.shape import RankShape
from runtime.engine.runner import kv_layout, load_runner
from runtime.engine.settings import EngineSettings, parse_settings

DOCUMENT = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
CONFIG = config_from_json(DOCUMENT, {})
HEADS = head_part(CONFIG, RankShape())
TOKEN_BYTES = 2 * 2 * 2 * 16 * 4  # layers, K and V, KV heads, head_dim, float32


def _settings(*flags: str, path: str | Path = "unused") -> EngineSettings:
    return parse_settings(["--model-path", str(path), *flags])


def test_max_total_tokens_is_rounded_up_to_whole_pages():
    layout = kv_layout(
        CONFIG, _settings("--max-total-tokens", "100", "--page-size", "16"), torch.float32, HEADS
    )
    assert (layout.num_pages, layout.page_size, layout.token_bytes) == (7, 16, TOKEN_BYTES)


def test_without_it_the_pool_takes_what_its_memory_holds():
    layout = kv_layout(CONFIG, _settings("--kv-pool-mb", "3", "--page-size", "10"), torch.float32, HEADS)
    assert layout.num_pages == 3 * 2**20 // (10 * TOKEN_BYTES)
    assert layout.total_bytes <= 3 * 2**20


def test_half_precision_holds_twice_as_many_pages():
    settings = _settings("--kv-pool-mb", "4")
    full, half = (kv_layout(CONFIG, settings, dtype, HEADS) for dtype in (torch.float32, torch.bfloat16))
    assert half.num_pages == 2 * full.num_pages


def test_a_pool_too_small_for_one_page_is_refused_with_both_sizes():
    with pytest.raises(ModelError, match=r"one KV page takes 2\.0 MiB, the pool of 1 MiB holds none"):
        kv_layout(CONFIG, _settings("--kv-pool-mb", "1", "--page-size", "4096"), torch.float32, HEADS)


def test_a_device_that_is_not_there_is_an_error_of_one_line(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(DOCUMENT))
    device = "cuda" if not torch.cuda.is_available() else "cuda:99"
    for name in (device, "no-such-device"):
        with pytest.raises(ModelError, match=f"device `{name}` cannot be used: [^\n]+$"):
            load_runner(_settings("--device", name, path=tmp_path))
