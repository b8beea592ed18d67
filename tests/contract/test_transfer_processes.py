"""What a backend owes when the other process stands still or dies: real processes, real signals."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.kv.page_runs import Write
from runtime.transfer.base import POOL, BackendOptions
from runtime.transfer.plugins import load_backend

pytestmark = pytest.mark.slow

BACKENDS = ["tcp", "mooncake", "nixl"]
_REGION_BYTES = 8 << 20
_PEER = Path(__file__).with_name("transfer_peer.py")


class Everywhere:
    def covers(self, offset: int, num_bytes: int) -> bool:
        return True


@pytest.fixture(params=BACKENDS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def start(name: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`start("receive")`, `start("send", endpoint)`."""
    started: list[subprocess.Popen[str]] = []

    def start_one(*arguments: str) -> subprocess.Popen[str]:
        # By sockets also where shared memory would do: writes into a stopped process would simply succeed.
        environ = os.environ | {"UCX_TLS": "tcp,self", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        argv = [sys.executable, str(_PEER), name, *arguments]
        process = subprocess.Popen(
            argv, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def backend(name: str, monkeypatch: pytest.MonkeyPatch):
    """With one thread and one queue: whatever blocks it blocks everything."""
    monkeypatch.setenv("UCX_TLS", "tcp,self")
    options = BackendOptions(num_threads=1, num_queues=1)
    opened = load_backend(name)(
        host="127.0.0.1", advertised_host="127.0.0.1", stall_timeout_s=60.0, options=options
    )
    opened.memory = bytearray(_REGION_BYTES)
    opened.register(POOL, memoryview(opened.memory))
    yield opened
    opened.close()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _send(session, num_bytes: int = _REGION_BYTES) -> queue.SimpleQueue[str | None]:
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    session.send(1, [Write(0, 0, num_bytes)], answers.put)
    return answers


def test_a_stopped_receiver_delays_no_other_and_gets_its_bytes_when_it_goes_on(start, backend):
    slow, quick = start("receive"), start("receive")
    to_slow, to_quick = [backend.connect(bytes.fromhex(_line(process))) for process in (slow, quick)]
    assert _send(to_slow).get(timeout=30) is None
    slow.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, slow.pid, os.WSTOPPED)
    held_up = [_send(to_slow) for _ in range(5)]
    for _ in range(20):
        assert _send(to_quick).get(timeout=30) is None
    assert all(answer.empty() for answer in held_up)
    slow.send_signal(signal.SIGCONT)
    assert [answer.get(timeout=60) for answer in held_up] == [None] * 5


def test_a_killed_receiver_is_an_answer_and_others_are_served(start, backend):
    doomed, other = start("receive"), start("receive")
    to_doomed, to_other = [backend.connect(bytes.fromhex(_line(process))) for process in (doomed, other)]
    answers = [_send(to_doomed) for _ in range(50)]
    assert answers[0].get(timeout=30) is None
    doomed.kill()
    assert [answer.get(timeout=60) for answer in answers[1:]][-1] is not None
    assert _send(to_doomed, 1).get(timeout=60) is not None
    assert _send(to_other).get(timeout=30) is None


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_nothing_lands_after_quiet_whatever_becomes_of_the_sender(start, backend, fate):
    backend.allow(1, Everywhere())
    sender = start("send", backend.endpoint().hex())
    assert [_line(sender) for _ in range(3)] == ["applied"] * 3
    sender.send_signal(fate)
    if fate is signal.SIGSTOP:
        os.waitid(os.P_PID, sender.pid, os.WSTOPPED)
    quiet = threading.Event()
    backend.revoke(1, quiet.set)
    if fate is signal.SIGKILL:
        assert quiet.wait(60)
    elif not quiet.is_set():  # a sender that stands still in a write keeps the memory in quarantine
        sender.send_signal(signal.SIGCONT)
        assert quiet.wait(60)
    backend.memory[:] = bytes(_REGION_BYTES)
    sender.send_signal(signal.SIGCONT)
    if fate is signal.SIGSTOP:
        while _line(sender) == "applied":
            pass
    assert backend.memory == bytes(_REGION_BYTES)
