"""Prefill and decode that split attention differently, as real processes: the tokens of one plain engine.

Every rank is a process, their sums are gloo's, their KV goes rank to rank and is verified by checksum.
"""

from __future__ import annotations

import itertools
import random
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_ROOMS = itertools.count(1)
_NUM_PROMPTS = 20
_NUM_NEW_TOKENS = 10
_SHAPES = [
    # model, prefill, decode
    ("4-kv-heads", ("1", "1"), ("1", "1")),
    ("4-kv-heads", ("2", "1"), ("1", "1")),
    ("4-kv-heads", ("1", "1"), ("2", "1")),
    ("4-kv-heads", ("4", "1"), ("4", "4")),
    ("4-kv-heads", ("4", "1"), ("2", "1")),
    ("2-kv-heads", ("2", "1"), ("4", "1")),
    ("latent", ("2", "1"), ("2", "2")),
    ("latent", ("2", "2"), ("2", "2")),
]


@dataclass(frozen=True)
class Started:
    engine: Any
    bootstrap_port: int


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory) -> Callable[[str], Path]:
    """A folder with a tiny random model, wide enough that answers tell prompts apart."""
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = _write_model(tmp_path_factory.mktemp(name), name)
        return made[name]

    return get


@pytest.fixture(scope="module")
def start(start_engine, folder_of) -> Callable[..., Started]:
    """`start(model, mode, tp_size, attn_dp_size, *flags)`: started once."""
    started: dict[tuple[str, ...], Started] = {}

    def get(model: str, mode: str, tp_size: str = "1", attn_dp_size: str = "1", *flags: str) -> Started:
        key = (model, mode, tp_size, attn_dp_size, *flags)
        if key not in started:
            port = _free_port()
            engine = start_engine(
                "--model-path", str(folder_of(model)), "--max-total-tokens", "8192", "--page-size", "8",
                "--chunked-prefill-size", "64", "--verify-kv", "--disaggregation-mode", mode,
                "--disaggregation-bootstrap-port", str(port), "--tp-size", tp_size,
                "--attn-dp-size", attn_dp_size, *flags,
            )  # fmt: skip
            started[key] = Started(engine, port)
        return started[key]

    return get


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2 * _NUM_PROMPTS) as pool:
        yield pool


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    chance = random.Random(5)
    lengths = [1, 2, 7, 8, 9, 63, 64, 65, 130, 200, *range(11, 91, 8)]
    assert len(lengths) == _NUM_PROMPTS
    return [[chance.randrange(3, 250) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize(
    ("model", "prefill", "decode"),
    _SHAPES,
    ids=lambda value: "-dp".join(value) if isinstance(value, tuple) else value,
)
def test_unequal_shapes_say_what_one_engine_says(start, check_pair, model, prefill, decode):
    check_pair(start(model, "null"), start(model, "prefill", *prefill), start(model, "decode", *decode))


@pytest.mark.parametrize("staging", ["on", "off"])
@pytest.mark.parametrize("backend", ["mooncake", "nixl"])
def test_a_librarys_writes_say_what_one_engine_says(start, check_pair, backend, staging):
    """Heads by way of staging, and one by one; the decode side decides."""
    library = ("--disaggregation-transfer-backend", backend)
    ours = start("4-kv-heads", "prefill", "2", "1", *library)
    theirs = start("4-kv-heads", "decode", "1", "1", *library, "--staging", staging)
    check_pair(start("4-kv-heads", "null"), ours, theirs)


@pytest.fixture
def check_pair(pool, prompts) -> Callable[[Started, Started, Started], None]:
    """That a pair answers all prompts at once as one engine alone does, and is empty afterwards."""

    def check(alone: Started, ours: Started, theirs: Started) -> None:
        expected = list(pool.map(lambda prompt: _generate(alone, _body(prompt)), prompts))
        assert len({str(answer) for answer in expected}) > _NUM_PROMPTS // 2, (
            "answers must tell prompts apart"
        )
        assert list(pool.map(lambda prompt: _ask(pool, ours, theirs, prompt), prompts)) == expected
        for one in (ours, theirs):
            _wait_until(lambda one=one: _is_empty(one))

    return check


def _ask(pool: ThreadPoolExecutor, prefill: Started, decode: Started, prompt: list[int]) -> list[int]:
    """Both halves at once, as a router does. `pool` has a thread for each half."""
    body = _body(prompt) | {
        "bootstrap_host": "127.0.0.1",
        "bootstrap_port": prefill.bootstrap_port,
        "bootstrap_room": next(_ROOMS),
    }
    with ThreadPoolExecutor(1) as other:
        half = other.submit(_generate, prefill, body)
        tokens = _generate(decode, body)
        assert half.result() == tokens[:1]
    return tokens


def _body(prompt: list[int]) -> dict[str, Any]:
    sampling = {"max_new_tokens": _NUM_NEW_TOKENS, "temperature": 0, "ignore_eos": True}
    return {"input_ids": prompt, "sampling_params": sampling}


def _generate(one: Started, body: dict[str, Any]) -> list[int]:
    answer = httpx.post(f"{one.engine.url}/generate", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()["output_ids"]


def _is_empty(one: Started) -> bool:
    stats = httpx.get(f"{one.engine.url}/server_info", timeout=10).json()["stats"]
    in_use = ("num_running", "num_waiting", "num_handshaking", "num_transferring")
    return stats["num_free_pages"] == stats["num_pages"] and not any(stats[name] for name in in_use)


def _wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come true"
        time.sleep(0.02)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def _write_model(folder: Path, name: str) -> Path:
    import torch
    import transformers

    torch.manual_seed(7)
    sizes = {
        "vocab_size": 259,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "max_position_embeddings": 1024,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    if name == "latent":  # with experts in all layers but the first
        latent = {"kv_lora_rank": 24, "q_lora_rank": 20, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8}
        latent |= {"v_head_dim": 12, "num_key_value_heads": 8, "first_k_dense_replace": 1}
        experts = {"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3, "n_group": 4}
        experts |= {"topk_group": 2, "moe_intermediate_size": 20}
        config = transformers.DeepseekV3Config(**sizes, **latent, **experts)
    else:
        config = transformers.LlamaConfig(
            **sizes, num_key_value_heads=int(name[0]), tie_word_embeddings=False
        )
    model = transformers.AutoModelForCausalLM.from_config(config)
    for weights in model.parameters():
        weights.data.normal_(0.0, 0.25) if weights.dim() > 1 else weights.data.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    return folder
