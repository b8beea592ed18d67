"""A library that fails once, always, late or out of order; the gate and all else are real.

The fabric here copies memory in the process, and fails when it is told to: the real ones can't be made to.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from collections import deque

import pytest

from runtime.kv.page_runs import Write
from runtime.transfer.base import POOL, BackendOptions, TransferError
from runtime.transfer.one_sided.backend import OneSidedBackend
from runtime.transfer.one_sided.lanes import LaneSizes


class Everywhere:
    def covers(self, offset: int, num_bytes: int) -> bool:
        return True


class CopyFabric:
    name, max_writes_in_flight, drain_s, needs_turns = "copy", 8, 0.05, False

    def __init__(self) -> None:
        self.post_faults: deque[str] = deque()
        self.flight_faults: deque[str | None] = deque()
        self.always: str | None = None
        self.order: list[int] = []  # of writes, by first byte of the source
        self.hold_first = threading.Event()
        self.hold_first.set()
        self.is_closed = False

    def register(self, address: int, num_bytes: int, device: int | None) -> None:
        pass

    def describe(self) -> bytes:
        return b""

    def open(self, description: bytes) -> CopyFabric:
        return self

    def post(self, copies):
        if self.post_faults:
            raise TransferError(self.post_faults.popleft())
        return CopyFlight(self, copies, self.flight_faults.popleft() if self.flight_faults else self.always)

    def take_turn(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class CopyFlight:
    def __init__(self, fabric: CopyFabric, copies, fault: str | None) -> None:
        self.fabric, self.copies, self.fault = fabric, copies, fault
        self.is_first = not fabric.order
        fabric.order.append(len(fabric.order))

    def is_applied(self) -> bool:
        if self.is_first and not self.fabric.hold_first.is_set():
            return False
        if self.fault is not None:
            raise TransferError(self.fault)
        for copy in self.copies:
            ctypes.memmove(copy.dst_address, copy.src_address, copy.num_bytes)
        return True


@pytest.fixture
def sides():
    """(sender, its fabric, its session to a receiver, the receiver), with two batches per receiver."""
    opened = []
    for _ in range(2):
        fabric = CopyFabric()
        backend = OneSidedBackend(
            fabric,
            host="127.0.0.1",
            advertised_host="127.0.0.1",
            stall_timeout_s=0.5,
            options=BackendOptions(num_threads=2, num_queues=1),
        )
        memory = bytearray(b"\x05" * 1000)
        backend.register(POOL, memoryview(memory))
        opened.append((backend, fabric, memory))
    (sender, fabric, _), (receiver, _, landed) = opened
    landed[:] = bytes(1000)
    receiver.allow(1, Everywhere())
    yield fabric, sender.connect(receiver.endpoint()), receiver, landed
    for backend, its_fabric, _ in opened:
        its_fabric.hold_first.set()
        backend.close()
        assert its_fabric.is_closed


def _send(session, writes: list[Write]) -> queue.SimpleQueue[str | None]:
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    session.send(1, writes, answers.put)
    return answers


@pytest.mark.parametrize("where", ["post_faults", "flight_faults"])
def test_an_error_once_fails_one_send(sides, where):
    fabric, session, receiver, landed = sides
    getattr(fabric, where).append("out of luck")
    assert "out of luck" in _send(session, [Write(0, 0, 10)]).get(timeout=10)
    assert _send(session, [Write(0, 0, 10)]).get(timeout=10) is None
    quiet = threading.Event()
    receiver.revoke(1, quiet.set)
    assert quiet.wait(10), "what had begun drains"
    assert landed[:11] == b"\x05" * 10 + b"\x00"


def test_an_error_always_fails_every_send_and_nothing_is_kept(sides):
    fabric, session, receiver, _ = sides
    fabric.always = "out of order"
    answers = [_send(session, [Write(n, n, 1) for n in range(50)]) for _ in range(20)]
    assert all("out of order" in answer.get(timeout=10) for answer in answers)
    quiet = threading.Event()
    receiver.revoke(1, quiet.set)
    assert quiet.wait(10)


def test_a_later_batch_may_be_applied_first(sides):
    fabric, session, _, landed = sides
    fabric.hold_first.clear()
    first, second = _send(session, [Write(0, 0, 10)]), _send(session, [Write(0, 100, 10)])
    assert second.get(timeout=10) is None
    assert first.empty()
    assert not any(landed[:10])
    fabric.hold_first.set()
    assert first.get(timeout=10) is None


def test_a_stall_is_answered_but_keeps_the_memory_in_quarantine(sides):
    fabric, session, receiver, landed = sides
    fabric.hold_first.clear()
    assert "made no progress for 0.5 s" in _send(session, [Write(0, 0, 10)]).get(timeout=10)
    quiet = threading.Event()
    receiver.revoke(1, quiet.set)
    assert not quiet.is_set()
    assert not any(landed)
    fabric.hold_first.set()
    assert quiet.wait(10)


@pytest.mark.parametrize(
    "write", [Write(990, 0, 11), Write(0, 990, 11), Write(-1, 0, 5), Write(0, -1, 5), Write(0, 0, 0)]
)
def test_memory_that_is_not_registered_is_neither_read_nor_written(sides, write):
    _, session, _, landed = sides
    assert _send(session, [write]).get(timeout=10)
    assert not any(landed)


def test_queues_and_threads_mean_what_they_mean_to_sglang():
    assert LaneSizes.of(BackendOptions(), num_cpus=2) == LaneSizes(num_queues=4, num_in_flight=1)
    assert LaneSizes.of(BackendOptions(), num_cpus=192) == LaneSizes(num_queues=4, num_in_flight=3)
    assert LaneSizes.of(BackendOptions(num_threads=9, num_queues=2)).num_in_flight == 4
    with pytest.raises(TransferError, match="4 transfer queues need as many threads, found 3"):
        LaneSizes.of(BackendOptions(num_threads=3))
