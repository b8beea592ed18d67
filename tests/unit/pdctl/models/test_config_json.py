"""Facts from a `config.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pdctl.models.config_json import LARGEST_BYTES, ConfigError, facts_of_config, read_config

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
}


def test_a_dense_model_with_groups_of_heads() -> None:
    facts = facts_of_config(LLAMA)
    assert (facts.attention, facts.num_layers, facts.num_heads, facts.num_kv_heads) == ("gqa", 32, 32, 8)
    assert (facts.head_dim, facts.num_experts, facts.context_length) == (128, 0, 131072)
    assert facts.source == "config.json"


@pytest.mark.parametrize(
    ("keys", "num_tokens"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 524288),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 1}}, 131072),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"rope_scaling": None}, 131072),
        ({"model_max_length": 8192}, 8192),  # asked for before `max_position_embeddings`
    ],
)
def test_the_longest_context_is_the_one_that_sglang_derives(keys: dict[str, Any], num_tokens: int) -> None:
    assert facts_of_config({**LLAMA, **keys}).context_length == num_tokens


@pytest.mark.parametrize(
    ("keys", "attention"),
    [
        ({"num_key_value_heads": 32}, "mha"),
        ({"num_key_value_heads": None}, "mha"),
        ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, "mla"),
        ({"model_type": "deepseek_v2", "kv_lora_rank": None}, "gqa"),  # the first V2 variants had none
        ({"model_type": "deepseek_v4"}, "mla"),
        ({"model_type": "gpt_oss", "sliding_window": 128}, "sliding"),
        ({"model_type": "mistral", "sliding_window": 4096}, "gqa"),
        ({"model_type": "qwen2", "sliding_window": 131072, "use_sliding_window": False}, "gqa"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "hybrid"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "gqa"),
        ({"layer_types": "full"}, "gqa"),
        ({"full_attention_interval": 4}, "hybrid"),
        ({"kv_lora_rank": 512, "linear_attn_config": {"kda_layers": [1]}}, "hybrid"),
        ({"num_attention_heads": None}, None),
        ({"architectures": ["MiniMaxM3SparseForConditionalGeneration"], "text_config": LLAMA}, "sparse"),
        ({"architectures": ["LlamaForCausalLM"]}, "gqa"),
        ({"architectures": "MiniMaxM3SparseForCausalLM"}, "gqa"),  # no list
    ],
)
def test_the_kind_of_attention(keys: dict[str, Any], attention: str | None) -> None:
    assert facts_of_config({**LLAMA, **keys}).attention == attention


@pytest.mark.parametrize("key", ["n_routed_experts", "num_experts", "num_local_experts"])
def test_experts_under_each_of_their_names(key: str) -> None:
    assert facts_of_config({**LLAMA, key: 256}).num_experts == 256


def test_the_text_part_of_a_model_with_vision() -> None:
    config = {"num_attention_heads": 16, "text_config": {**LLAMA, "num_key_value_heads": 4}}
    assert facts_of_config(config).num_kv_heads == 4


@pytest.mark.parametrize("value", ["61", 6.5, True, -1])
def test_a_count_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        facts_of_config({**LLAMA, "num_hidden_layers": value})


def test_reading_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert read_config(str(tmp_path)) == LLAMA


@pytest.mark.parametrize("path", ["meta-llama/Llama-3.1-8B", "/no/such/folder"])
def test_what_is_no_folder_here_has_no_config(path: str) -> None:
    assert read_config(path) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[1]", "no JSON object"),
        (b"[" * 100_000, "no JSON"),
        (b" " * (LARGEST_BYTES + 1), "larger"),
    ],
    ids=["cut", "binary", "list", "deep", "huge"],
)
def test_a_file_that_is_no_config_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        read_config(str(tmp_path))
