"""Feeding a child and reading it, with real children."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from pdctl.executors.openssh_transport.exchange import TooMuchError, exchange

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def start_one(program: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(["sh", "-c", program], stdin=pipe, stdout=pipe, stderr=pipe))
        return started[-1]

    yield start_one
    for child in started:
        with child:
            child.kill()


def _exchange(child, stdin: bytes = b"", *, limit_s: float = 20.0, max_bytes: int = 1 << 30):
    return exchange(child, stdin, deadline=time.monotonic() + limit_s, max_bytes=max_bytes)


def test_more_than_pipes_hold_goes_both_ways_at_once(start):
    sent = bytes(range(256)) * 16384
    assert _exchange(start("tee /dev/stderr"), sent) == (sent, sent)


def test_a_child_that_reads_nothing_is_no_fault(start):
    assert _exchange(start("exec <&-; echo out; echo err >&2"), b"x" * (1 << 20)) == (b"out\n", b"err\n")


def test_time_ends(start):
    with pytest.raises(TimeoutError):
        _exchange(start("echo early; sleep 60"), limit_s=0.2)


def test_room_ends(start):
    with pytest.raises(TooMuchError):
        _exchange(start("cat /dev/zero"), max_bytes=1 << 20)
