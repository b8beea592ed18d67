"""The processes of one engine start, serve and end together, whatever happens to one of them."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_FLAGS = ("--max-total-tokens", "4096", "--page-size", "8")
_SAMPLING = {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}
_BODY = {"input_ids": [5, 6, 7], "sampling_params": _SAMPLING}


@pytest.fixture
def start_two(start_engine, tiny_llama) -> Callable[..., object]:
    """A ready engine of two ranks on this node."""

    def start(*flags: str):
        return start_engine("--model-path", str(tiny_llama), *_FLAGS, "--tp-size", "2", *flags)

    return start


def test_an_engine_that_is_told_to_stop_leaves_no_rank(start_two, tiny_engine):
    engine = start_two()
    (other,) = _children(engine.process.pid)
    assert _generate(engine.url) == _generate(tiny_engine.url)
    os.kill(other, signal.SIGTERM)  # whoever stops a deployment signals every process of it
    assert _generate(engine.url) == _generate(tiny_engine.url)
    engine.signal(signal.SIGTERM)
    assert engine.wait(30) == 0
    _wait_until(lambda: not _is_alive(other))


def test_a_rank_that_dies_ends_the_engine_with_its_number(start_two):
    engine = start_two()
    (other,) = _children(engine.process.pid)
    os.kill(other, signal.SIGKILL)
    assert engine.wait(30) == 1
    assert "error: rank 1 of this engine ended with signal SIGKILL" in engine.log


def test_ranks_do_not_outlive_a_leader_that_is_killed(start_two):
    engine = start_two()
    (other,) = _children(engine.process.pid)
    engine.signal(signal.SIGKILL)
    engine.wait(30)
    _wait_until(lambda: not _is_alive(other))


def test_a_model_that_cannot_be_shared_ends_the_start_with_the_reason(run_engine_to_end, tiny_llama):
    ended = run_engine_to_end("--model-path", str(tiny_llama), *_FLAGS, "--port", "0", "--tp-size", "3")
    assert ended.returncode == 1
    assert "4 query heads cannot be shared evenly by 3 attention ranks" in ended.stderr


def test_widths_that_do_not_divide_are_refused_at_once(run_engine_to_end, tiny_llama):
    ended = run_engine_to_end("--model-path", str(tiny_llama), "--tp-size", "4", "--attn-dp-size", "3")
    assert ended.returncode == 2
    assert "--attn-dp-size must divide --tp-size, found 3 and 4" in ended.stderr


def test_an_engine_over_two_nodes_serves_and_ends_as_one(start_engine, spawn_engine, tiny_llama, tiny_engine):
    """One process per node, as pdctl starts them; the second has no port of its own."""
    address = f"127.0.0.1:{_free_port()}"
    spread = ("--model-path", str(tiny_llama), *_FLAGS, "--tp-size", "2", "--nnodes", "2")
    spread += ("--dist-init-addr", address)
    follower = spawn_engine(*spread, "--node-rank", "1")
    leader = start_engine(*spread)
    assert _generate(leader.url) == _generate(tiny_engine.url)
    follower.send_signal(signal.SIGTERM)  # it waits for what the leader has to finish
    assert _generate(leader.url) == _generate(tiny_engine.url)
    leader.signal(signal.SIGTERM)
    assert (leader.wait(30), follower.wait(30)) == (0, 0)


def _generate(url: str) -> list[int]:
    answer = httpx.post(f"{url}/generate", json=_BODY, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()["output_ids"]


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come true"
        time.sleep(0.02)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]
