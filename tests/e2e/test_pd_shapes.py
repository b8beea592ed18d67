"""Prefill and decode that split attention differently, over every backend that runs here: as one engine says.

Every rank is a process, their sums are gloo's, their KV goes rank to rank and is verified by checksum.
"""

from __future__ import annotations

import itertools
import random
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_ROOMS = itertools.count(1)
_NUM_PROMPTS = 20
_NUM_NEW_TOKENS = 10
_BACKENDS = ("tcp", "mooncake", "nixl")
_SHAPES = {
    "TP1-TP1": ("4-kv-heads", ("1", "1"), ("1", "1")),  # model; TP and attention DP of prefill, of decode
    "TP2-TP1": ("4-kv-heads", ("2", "1"), ("1", "1")),
    "TP1-TP2": ("4-kv-heads", ("1", "1"), ("2", "1")),
    "TP4-DP4": ("4-kv-heads", ("4", "1"), ("4", "4")),
    "TP4-TP2": ("4-kv-heads", ("4", "1"), ("2", "1")),
    "TP2-TP4-with-2-heads": ("2-kv-heads", ("2", "1"), ("4", "1")),
    "latent-TP2-DP2": ("latent", ("2", "1"), ("2", "2")),
}

Shape = tuple[str, str]
Answers = list[list[int]]


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
    """`start(model, *flags)`."""

    def start(model: str, *flags: str) -> Started:
        port = _free_port()
        engine = start_engine(
            "--model-path", str(folder_of(model)), "--max-total-tokens", "8192", "--page-size", "8",
            "--chunked-prefill-size", "64", "--verify-kv", "--disaggregation-bootstrap-port", str(port),
            *flags,
        )  # fmt: skip
        return Started(engine, port)

    return start


@pytest.fixture(scope="module", params=_BACKENDS)
def fleet(request: pytest.FixtureRequest, start) -> Iterator[Callable[..., Started]]:
    """`fleet(model, mode, shape, *flags)`: an engine of one backend, started once, ended with the last test
    of the backend."""
    started: dict[tuple[object, ...], Started] = {}

    def get(model: str, mode: str, shape: Shape, *flags: str) -> Started:
        key = (model, mode, shape, *flags)
        if key not in started:
            tp_size, attn_dp_size = shape
            split = ("--tp-size", tp_size, "--attn-dp-size", attn_dp_size)
            library = ("--disaggregation-mode", mode, "--disaggregation-transfer-backend", request.param)
            started[key] = start(model, *library, *split, *flags)
        return started[key]

    yield get
    for one in started.values():
        one.engine.process.kill()


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=120, limits=httpx.Limits(max_connections=None)) as client:
        yield client


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    chance = random.Random(5)
    lengths = [1, 2, 7, 8, 9, 63, 64, 65, 130, 200, *range(11, 91, 8)]
    assert len(lengths) == _NUM_PROMPTS
    return [[chance.randrange(3, 250) for _ in range(length)] for length in lengths]


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2 * _NUM_PROMPTS) as pool:
        yield pool


@pytest.fixture(scope="module")
def answers_of(start, client, pool, prompts) -> Callable[[str], Answers]:
    """What one plain engine says to the prompts."""
    known: dict[str, Answers] = {}

    def get(model: str) -> Answers:
        if model not in known:
            alone = start(model)
            known[model] = list(pool.map(lambda prompt: _generate(client, alone, _body(prompt)), prompts))
            alone.engine.process.kill()
            assert len({str(answer) for answer in known[model]}) > _NUM_PROMPTS // 2, (
                "answers must tell prompts apart"
            )
        return known[model]

    return get


@pytest.fixture
def check_pair(client, pool, prompts) -> Callable[[Started, Started, Answers], None]:
    """That a pair answers all prompts at once as one engine alone does, and is empty afterwards."""

    def check(prefill: Started, decode: Started, expected: Answers) -> None:
        halves = [_ask(pool, client, prefill, decode, prompt) for prompt in prompts]
        for (ours, theirs), tokens in zip(halves, expected, strict=True):
            assert theirs.result() == tokens
            assert ours.result() == tokens[:1]
        for one in (prefill, decode):
            _wait_until(lambda one=one: _is_empty(client, one))

    return check


@pytest.mark.parametrize("shape", _SHAPES)
def test_unequal_shapes_say_what_one_engine_says(fleet, check_pair, answers_of, shape):
    model, prefill, decode = _SHAPES[shape]
    check_pair(fleet(model, "prefill", prefill), fleet(model, "decode", decode), answers_of(model))


def test_heads_one_by_one_say_what_one_engine_says(fleet, check_pair, answers_of):
    """Without staging; the decode side decides."""
    decode = fleet("4-kv-heads", "decode", ("1", "1"), "--staging", "off")
    check_pair(fleet("4-kv-heads", "prefill", ("2", "1")), decode, answers_of("4-kv-heads"))


def test_attention_data_parallelism_on_both_sides_says_what_one_engine_says(fleet, check_pair, answers_of):
    both = ("2", "2")
    check_pair(fleet("latent", "prefill", both), fleet("latent", "decode", both), answers_of("latent"))


def _ask(
    pool: ThreadPoolExecutor, client: httpx.Client, prefill: Started, decode: Started, prompt: list[int]
) -> tuple[Future[list[int]], Future[list[int]]]:
    """Both halves at once, as a router does."""
    body = _body(prompt) | {
        "bootstrap_host": "127.0.0.1",
        "bootstrap_port": prefill.bootstrap_port,
        "bootstrap_room": next(_ROOMS),
    }
    return pool.submit(_generate, client, prefill, body), pool.submit(_generate, client, decode, body)


def _body(prompt: list[int]) -> dict[str, Any]:
    sampling = {"max_new_tokens": _NUM_NEW_TOKENS, "temperature": 0, "ignore_eos": True}
    return {"input_ids": prompt, "sampling_params": sampling}


def _generate(client: httpx.Client, one: Started, body: dict[str, Any]) -> list[int]:
    answer = client.post(f"{one.engine.url}/generate", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["output_ids"]


def _is_empty(client: httpx.Client, one: Started) -> bool:
    stats = client.get(f"{one.engine.url}/server_info").json()["stats"]
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
