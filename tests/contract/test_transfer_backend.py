"""What every transfer backend must do: one suite, run for each backend that works on this machine."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import torch

from runtime.kv.memory import DeviceMemory
from runtime.kv.page_runs import Write
from runtime.transfer.base import POOL, TransferBackend, TransferError
from runtime.transfer.plugins import load_backend

BACKENDS = ["tcp", "mooncake", "nixl", "ascend"]
_REGION_BYTES = 1 << 20


class Span:
    """A window over one range of bytes."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def covers(self, offset: int, num_bytes: int) -> bool:
        return self.start <= offset and offset + num_bytes <= self.end


class End:
    """One process's side: a backend with its registered memory."""

    def __init__(self, backend: TransferBackend, fill: int) -> None:
        self.backend = backend
        self.memory = bytearray(bytes([fill]) * _REGION_BYTES)
        backend.register(POOL, memoryview(self.memory))


@pytest.fixture(params=BACKENDS)
def open_end(request: pytest.FixtureRequest) -> Iterator[Callable[..., End]]:
    if request.param == "ascend":  # its library does nothing without an NPU
        request.getfixturevalue("memfabric")
    ends: list[End] = []

    def open_one(fill: int = 0, stall_timeout_s: float = 5.0) -> End:
        opener = load_backend(request.param)
        backend = opener(host="127.0.0.1", advertised_host="127.0.0.1", stall_timeout_s=stall_timeout_s)
        end = End(backend, fill)
        ends.append(end)
        return end

    yield open_one
    for end in ends:
        end.backend.close()


def _send(session, ticket: int, writes: list[Write]) -> queue.SimpleQueue[str | None]:
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    session.send(ticket, writes, answers.put)
    return answers


def test_bytes_land_where_they_are_meant_and_are_there_when_told(open_end):
    sender, receiver = open_end(fill=7), open_end()
    receiver.backend.allow(1, Span(1000, 5000))
    session = sender.backend.connect(receiver.backend.endpoint())
    writes = [Write(0, 1000, 10), Write(500, 4990, 10), Write(20, 2000, 1)]
    assert _send(session, 1, writes).get(timeout=5) is None
    wanted = bytearray(_REGION_BYTES)
    for write in writes:
        wanted[write.dst_offset : write.dst_offset + write.num_bytes] = b"\x07" * write.num_bytes
    assert receiver.memory == wanted
    assert sender.backend.num_bytes_sent() == 21


@pytest.mark.parametrize("num_writes", [1, 2, 511, 512, 513, 1024, 1025, 4096, 4097, 10_000])
def test_any_number_of_pieces_in_one_send(open_end, num_writes):
    sender, receiver = open_end(), open_end()
    sender.memory[:] = bytes(range(256)) * (_REGION_BYTES // 256)
    receiver.backend.allow(1, Span(0, _REGION_BYTES))
    session = sender.backend.connect(receiver.backend.endpoint())
    writes = [Write(37 * n % 100_000, 100 * n, 1 + n % 100) for n in range(num_writes)]
    assert _send(session, 1, writes).get(timeout=10) is None
    for write in writes:
        end = write.src_offset + write.num_bytes
        piece = receiver.memory[write.dst_offset : write.dst_offset + write.num_bytes]
        assert piece == sender.memory[write.src_offset : end]


def test_one_block_as_large_as_the_region(open_end):
    sender, receiver = open_end(fill=9), open_end()
    receiver.backend.allow(1, Span(0, _REGION_BYTES))
    session = sender.backend.connect(receiver.backend.endpoint())
    assert _send(session, 1, [Write(0, 0, _REGION_BYTES)]).get(timeout=5) is None
    assert receiver.memory == sender.memory


def test_an_unknown_ticket_writes_nothing_and_the_session_lives_on(open_end):
    sender, receiver = open_end(fill=7), open_end()
    receiver.backend.allow(1, Span(0, 100))
    session = sender.backend.connect(receiver.backend.endpoint())
    refused = _send(session, 2, [Write(0, 0, 50)])
    taken = _send(session, 1, [Write(0, 60, 10)])
    assert refused.get(timeout=5)
    assert taken.get(timeout=5) is None
    assert receiver.memory[:60] == bytes(60)


@pytest.mark.parametrize("write", [Write(0, 90, 20), Write(0, 200, 1), Write(0, _REGION_BYTES - 1, 10)])
def test_a_write_outside_the_window_changes_nothing(open_end, write):
    sender, receiver = open_end(fill=7), open_end()
    receiver.backend.allow(1, Span(0, 100))
    session = sender.backend.connect(receiver.backend.endpoint())
    assert _send(session, 1, [Write(0, 0, 10), write]).get(timeout=5)
    assert receiver.memory == bytes(_REGION_BYTES)
    assert _send(session, 1, [Write(0, 0, 10)]).get(timeout=5) is None


def test_nothing_lands_after_revoke(open_end):
    sender, receiver = open_end(fill=7), open_end()
    receiver.backend.allow(1, Span(0, _REGION_BYTES))
    session = sender.backend.connect(receiver.backend.endpoint())
    answers = [_send(session, 1, [Write(0, 0, _REGION_BYTES)]) for _ in range(50)]
    answers[0].get(timeout=5)
    quiet = threading.Event()
    receiver.backend.revoke(1, quiet.set)
    assert quiet.wait(5)
    receiver.memory[:] = bytes(_REGION_BYTES)
    last = [answer.get(timeout=5) for answer in answers[1:]]
    assert last[-1] is not None
    assert receiver.memory == bytes(_REGION_BYTES)
    for ticket in (1, 99):
        quiet.clear()
        receiver.backend.revoke(ticket, quiet.set)
        assert quiet.is_set(), "what is not granted is quiet at once"


def test_cancelled_sends_are_answered_and_others_go_out(open_end):
    sender, receiver = open_end(fill=7), open_end()
    receiver.backend.allow(1, Span(0, _REGION_BYTES))
    receiver.backend.allow(2, Span(0, _REGION_BYTES))
    session = sender.backend.connect(receiver.backend.endpoint())
    doomed = [_send(session, 1, [Write(0, 0, _REGION_BYTES)]) for _ in range(100)]
    kept = _send(session, 2, [Write(0, 0, 1)])
    session.cancel(1)
    assert kept.get(timeout=5) is None
    outcomes = [answer.get(timeout=5) for answer in doomed]
    assert outcomes[-1] is not None


def test_closing_a_session_answers_every_send(open_end):
    sender, receiver = open_end(), open_end()
    receiver.backend.allow(1, Span(0, _REGION_BYTES))
    session = sender.backend.connect(receiver.backend.endpoint())
    answers = [_send(session, 1, [Write(0, 0, _REGION_BYTES)]) for _ in range(100)]
    session.close()
    session.close()
    outcomes = [answer.get(timeout=5) for answer in answers]
    assert outcomes[-1] is not None
    assert _send(session, 1, [Write(0, 0, 1)]).get(timeout=5) is not None


def test_a_receiver_that_is_gone_is_an_answer_not_a_wait(open_end):
    sender, receiver = open_end(), open_end()
    receiver.backend.allow(1, Span(0, _REGION_BYTES))
    session = sender.backend.connect(receiver.backend.endpoint())
    assert _send(session, 1, [Write(0, 0, 1)]).get(timeout=5) is None
    receiver.backend.close()
    assert _send(session, 1, [Write(0, 0, 1)]).get(timeout=5)
    assert _send(session, 1, [Write(0, 0, 1)]).get(timeout=5)


def test_several_senders_write_into_one_receiver_at_once(open_end):
    receiver = open_end()
    senders = [open_end(fill=n + 1) for n in range(4)]
    answers = []
    for n, sender in enumerate(senders):
        receiver.backend.allow(n, Span(n * 1000, n * 1000 + 1000))
        session = sender.backend.connect(receiver.backend.endpoint())
        answers += [_send(session, n, [Write(0, n * 1000 + 10 * k, 10)]) for k in range(100)]
    assert all(answer.get(timeout=5) is None for answer in answers)
    assert receiver.memory[:4000] == b"".join(bytes([n + 1]) * 1000 for n in range(4))


def test_a_second_region_has_windows_of_its_own(open_end):
    sender, receiver = open_end(fill=7), open_end()
    staging = {side: bytearray(1000) for side in ("ours", "theirs")}
    staging["ours"][:] = b"\x05" * 1000
    sender.backend.register(1, memoryview(staging["ours"]))
    receiver.backend.register(1, memoryview(staging["theirs"]))
    receiver.backend.allow(9, Span(0, 500), region_id=1)
    session = sender.backend.connect(receiver.backend.endpoint())
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    session.send(9, [Write(0, 100, 50)], answers.put, region_id=1)
    assert answers.get(timeout=5) is None
    assert staging["theirs"][100:150] == b"\x05" * 50
    assert receiver.memory == bytes(_REGION_BYTES)
    assert _send(session, 9, [Write(0, 100, 50)]).get(timeout=5), "the ticket is for the other region"
    assert receiver.memory == bytes(_REGION_BYTES)


def test_memory_that_cannot_be_written_is_not_registered(open_end):
    with pytest.raises(TransferError):
        open_end().backend.register(2, memoryview(b"read only"))


@pytest.mark.parametrize(
    ("name", "why"),
    [("tcp", "moves host memory only"), ("mooncake", "this build of mooncake moves host memory only: pip")],
)
def test_an_accelerators_memory_is_refused_by_what_cannot_reach_it(name, why):
    """A library that took it for host memory would read and write at random."""
    backend = load_backend(name)(host="127.0.0.1", advertised_host="127.0.0.1", stall_timeout_s=5.0)
    with closing(backend), pytest.raises(TransferError, match=why):
        backend.register(POOL, DeviceMemory(torch.zeros(4096, dtype=torch.uint8)))


@pytest.mark.parametrize("endpoint", [b"", b"\xff", b"{}", b'["host"]', b'["host", 70000]', b"[1, 2, 3]"])
def test_an_endpoint_that_is_none_is_told_at_once(open_end, endpoint):
    with pytest.raises(TransferError):
        open_end().backend.connect(endpoint)


def test_a_closed_backend_leaves_no_thread(open_end):
    before = threading.active_count()
    sender, receiver = open_end(), open_end()
    receiver.backend.allow(1, Span(0, 100))
    session = sender.backend.connect(receiver.backend.endpoint())
    assert _send(session, 1, [Write(0, 0, 1)]).get(timeout=5) is None
    sender.backend.close()
    receiver.backend.close()
    receiver.backend.close()
    assert threading.active_count() == before
