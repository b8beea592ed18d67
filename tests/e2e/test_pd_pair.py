"""Prefill and decode as real processes, asked together as a router would: equal answers, and quick ends."""

from __future__ import annotations

import itertools
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.slow

_ROOMS = itertools.count(1)
_ENGINE = ("--max-total-tokens", "16384", "--page-size", "8", "--chunked-prefill-size", "64", "--verify-kv")


@dataclass(frozen=True)
class Prefill:
    engine: Any
    bootstrap_port: int


@pytest.fixture(scope="module")
def start_prefill(start_engine, tiny_llama, free_port) -> Callable[..., Prefill]:
    def start(*flags: str) -> Prefill:
        port = free_port()
        mode = ("--disaggregation-mode", "prefill", "--disaggregation-bootstrap-port", str(port))
        engine = start_engine(
            "--model-path", str(tiny_llama), *_ENGINE, *mode, "--heartbeat-interval", "0.5", *flags
        )
        return Prefill(engine, port)

    return start


@pytest.fixture(scope="module")
def prefill(start_prefill) -> Prefill:
    return start_prefill()


@pytest.fixture(scope="module")
def decode(start_engine, tiny_llama):
    mode = ("--disaggregation-mode", "decode", "--heartbeat-interval", "0.5")
    return start_engine("--model-path", str(tiny_llama), *_ENGINE, *mode)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as pool:
        yield pool


def _generate(engine: Any, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{engine.url}/generate", json=body, timeout=60)


def _body(prompt: list[int], num_tokens: int, prefill: Prefill | None = None) -> dict[str, Any]:
    sampling = {"max_new_tokens": num_tokens, "temperature": 0, "ignore_eos": True}
    body: dict[str, Any] = {"input_ids": prompt, "sampling_params": sampling}
    if prefill is not None:
        body |= {
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": prefill.bootstrap_port,
            "bootstrap_room": next(_ROOMS),
        }
    return body


def _ask(pool, prefill: Prefill, decode: Any, prompt: list[int], num_tokens: int) -> tuple[Future, Future]:
    body = _body(prompt, num_tokens, prefill)
    return pool.submit(_generate, prefill.engine, body), pool.submit(_generate, decode, body)


def _stats(engine: Any) -> dict[str, Any]:
    return httpx.get(f"{engine.url}/server_info", timeout=60).json()["stats"]


def _is_empty(engine: Any) -> bool:
    stats = _stats(engine)
    in_use = ("num_running", "num_waiting", "num_handshaking", "num_transferring")
    return stats["num_free_pages"] == stats["num_pages"] and not any(stats[name] for name in in_use)


def test_the_pair_says_what_the_unified_engine_says(pool, prefill, decode, tiny_engine):
    chance = random.Random(3)
    prompts = [
        [chance.randrange(250) for _ in range(length)] for length in (1, 2, 7, 8, 9, 63, 64, 65, 200, 777)
    ]
    pairs = [_ask(pool, prefill, decode, prompt, 24) for prompt in prompts]
    alone = [pool.submit(_generate, tiny_engine, _body(prompt, 24)) for prompt in prompts]
    for (ours, theirs), one in zip(pairs, alone, strict=True):
        assert ours.result().status_code == 200
        assert theirs.result().json()["text"] == one.result().json()["text"]
    wait_until(lambda: _is_empty(prefill.engine) and _is_empty(decode))


def test_a_client_that_hangs_up_ends_both_halves(prefill, decode):
    body = _body(list(range(200)), 4000, prefill) | {"stream": True}
    leg = threading.Thread(target=_generate, args=(prefill.engine, body | {"stream": False}))
    leg.start()
    with httpx.stream("POST", f"{decode.url}/generate", json=body, timeout=30) as response:
        lines = response.iter_lines()  # the connection closes with the iterator
        next(lines)
        wait_until(lambda: _stats(decode)["num_running"] == 1)
    wait_until(lambda: _is_empty(prefill.engine) and _is_empty(decode))
    leg.join()


def test_prefill_killed_in_a_transfer_is_an_error_at_once_and_decode_serves_on(
    pool, start_prefill, prefill, decode
):
    doomed = start_prefill()
    ours, theirs = _ask(pool, doomed, decode, [1] * 12_000, 8)
    wait_until(lambda: _stats(decode)["num_transferring"] == 1)
    other = _ask(pool, prefill, decode, [5, 6, 7], 16)[1]
    doomed.engine.signal(signal.SIGKILL)
    response = theirs.result()
    assert response.status_code == 503
    # At once: a moment later, it would be a peer that has been silent.
    assert f"lost the prefill instance 127.0.0.1:{doomed.bootstrap_port}" in response.text
    assert isinstance(ours.exception(), httpx.TransportError)
    assert other.result().status_code == 200
    wait_until(lambda: _is_empty(decode))


def test_a_prefill_that_stops_without_dying_is_noticed_by_its_heartbeat(pool, start_prefill, decode):
    stopped = start_prefill()
    ours, theirs = _ask(pool, stopped, decode, [1] * 12_000, 8)
    wait_until(lambda: _stats(decode)["num_transferring"] == 1)
    stopped.engine.signal(signal.SIGSTOP)
    try:
        response = theirs.result(timeout=60)
        assert response.status_code == 503
        assert "the peer was silent for 1.5 s" in response.text
        wait_until(lambda: _is_empty(decode))
    finally:
        stopped.engine.signal(signal.SIGKILL)
    assert isinstance(ours.exception(), httpx.TransportError)


def test_decode_killed_frees_everything_on_prefill(pool, prefill, start_engine, tiny_llama):
    doomed = start_engine("--model-path", str(tiny_llama), *_ENGINE, "--disaggregation-mode", "decode")
    ours, theirs = _ask(pool, prefill, doomed, [1] * 12_000, 8)
    wait_until(lambda: _stats(prefill.engine)["num_transferring"] == 1)
    doomed.signal(signal.SIGKILL)
    response = ours.result()
    assert response.status_code == 503
    # Whichever connection tells first.
    assert any(why in response.text for why in ("lost the decode instance", "the KV transfer failed"))
    assert isinstance(theirs.exception(), httpx.TransportError)
    wait_until(lambda: _is_empty(prefill.engine))


def test_another_page_size_is_refused_with_a_message_that_reaches_the_client(
    pool, prefill, start_engine, tiny_llama
):
    other = start_engine(
        "--model-path", str(tiny_llama), "--max-total-tokens", "512", "--page-size", "16",
        "--disaggregation-mode", "decode",
    )  # fmt: skip
    response = _generate(other, _body([1, 2, 3], 4, prefill))
    assert response.status_code == 500
    assert "prefill has the page size 8, decode 16" in response.text


def test_a_bootstrap_server_with_a_token_serves_those_that_have_it(
    pool, start_prefill, decode, start_engine, tiny_llama, tmp_path
):
    file = tmp_path / "token"
    file.write_text("open-sesame\n")
    token = ("--bootstrap-token-file", str(file))
    prefill = start_prefill(*token)
    friend = start_engine(
        "--model-path", str(tiny_llama), *_ENGINE, "--disaggregation-mode", "decode", *token
    )
    refused = _generate(decode, _body([1, 2, 3], 4, prefill))
    assert refused.status_code == 500
    where = f"127.0.0.1:{prefill.bootstrap_port}"
    assert (
        f"bootstrap server {where} answered 401: it wants a token, and this engine has none" in refused.text
    )
    ours, theirs = _ask(pool, prefill, friend, [1, 2, 3], 4)
    assert (ours.result().status_code, theirs.result().status_code) == (200, 200)
    assert "sesame" not in prefill.engine.log + friend.log + refused.text


def test_a_token_that_cannot_be_read_ends_the_start_with_its_file(run_engine_to_end, tiny_llama, tmp_path):
    flags = ("--disaggregation-mode", "decode", "--bootstrap-token-file", str(tmp_path / "nothing"))
    ended = run_engine_to_end("--model-path", str(tiny_llama), *flags)
    assert ended.returncode == 1
    assert f"cannot read the bootstrap token: [Errno 2] No such file or directory: '{tmp_path}/nothing'" in (
        ended.stderr
    )


def test_a_taken_bootstrap_port_ends_the_start_with_its_number(run_engine_to_end, tiny_llama):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = run_engine_to_end(
            "--model-path", str(tiny_llama), "--port", "0", "--disaggregation-mode", "prefill",
            "--disaggregation-bootstrap-port", port,
        )  # fmt: skip
    assert ended.returncode == 1
    assert f"cannot serve the bootstrap port 127.0.0.1:{port}" in ended.stderr


def test_an_unknown_backend_ends_the_start_with_the_known_ones(run_engine_to_end, tiny_llama):
    ended = run_engine_to_end(
        "--model-path", str(tiny_llama), "--port", "0", "--disaggregation-mode", "decode",
        "--disaggregation-transfer-backend", "pigeon",
    )  # fmt: skip
    assert ended.returncode == 1
    assert "unknown transfer backend `pigeon`, known: " in ended.stderr
