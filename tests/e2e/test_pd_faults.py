"""Peers that lie, repeat themselves, come too early, fill up, or fall silent: each costs its own request.

Both engines are real processes. Where a peer has to misbehave, the test is the peer, over real sockets.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from runtime.bootstrap.client import find_prefill
from runtime.control.messages import (
    LENGTH,
    PROTOCOL_VERSION,
    AbortDone,
    AbortRoom,
    Hello,
    Message,
    OpenRoom,
    RoomDone,
    RoomState,
    Welcome,
)
from runtime.control.network import ControlNetwork
from runtime.control.rooms import KVPoll
from runtime.engine.ranks.ways import Endpoints
from runtime.transfer.base import POOL
from runtime.transfer.plugins import load_backend
from tests.testbed.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_ROOMS = itertools.count(1)
_PAGE_SIZE, _NUM_PAGES = 8, 256
_FLAGS = ("--max-total-tokens", str(_PAGE_SIZE * _NUM_PAGES), "--page-size", str(_PAGE_SIZE))
_SLOT_BYTES = 2 * 2 * 2 * 16 * 4  # layers, keys and values, KV heads, head_dim, float32: of the tiny model
_LIES = [
    LENGTH.pack(2**32 - 1) + b"x",
    LENGTH.pack(0),
    LENGTH.pack(16 << 20) + b"\xdc\xff\xff",  # and then hangs up in the middle
    bytes(64),
    b"\xff" * 64,
    b"GET / HTTP/1.1\r\n\r\n",
]


Half = Future[httpx.Response]


class Everywhere:
    def covers(self, offset: int, num_bytes: int) -> bool:
        return True


class Decode:
    """A decode instance whose words are the test's. A `LinkListener`."""

    def __init__(self, bootstrap_port: int) -> None:
        self.heard: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._is_up = threading.Event()
        self._network = ControlNetwork(self, heartbeat_interval_s=60.0)
        self._backend = load_backend("tcp")(
            host="127.0.0.1", advertised_host="127.0.0.1", stall_timeout_s=5.0
        )
        self.memory = bytearray(_SLOT_BYTES * _PAGE_SIZE * _NUM_PAGES)
        self._backend.register(POOL, memoryview(self.memory))
        found = find_prefill("127.0.0.1", bootstrap_port, deadline_s=0.0, stopped=threading.Event())
        self._link_id = self._network.dial(found.rank_ip, found.rank_port)
        assert self._is_up.wait(60)
        self.say(_hello(Endpoints(backend=self._backend.endpoint(), staging=None).pack()))
        assert isinstance(self.hear(), Welcome)

    def on_up(self, link_id: int) -> None:
        self._is_up.set()

    def on_message(self, link_id: int, message: Message) -> None:
        self.heard.put(message)

    def on_down(self, link_id: int, reason: str) -> None:
        pass

    def say(self, message: Message) -> None:
        self._network.send(self._link_id, message)

    def hear(self) -> Message:
        return self.heard.get(timeout=60)

    def allow(self, ticket: int) -> None:
        self._backend.allow(ticket, Everywhere())

    def open(self, room: int, ticket: int, *, pages: tuple[int, ...] = (1,), prompt_len: int = 4) -> None:
        self.say(OpenRoom(room=room, ticket=ticket, attn_dp_rank=0, prompt_len=prompt_len, pages=pages))

    def hang_up(self) -> None:
        self._network.close()
        self._backend.close()


@dataclass(frozen=True)
class Pair:
    prefill: Any
    decode: Any
    bootstrap_port: int

    def both(self, pool: ThreadPoolExecutor, body: dict[str, Any]) -> tuple[Half, Half]:
        """Ask both halves, as a router does."""
        return pool.submit(_generate, self.prefill, body), pool.submit(_generate, self.decode, body)

    def body(self, prompt: list[int] | None = None, *, num_tokens: int = 4) -> dict[str, Any]:
        return {
            "input_ids": prompt or [5, 6, 7, 8],
            "sampling_params": {"max_new_tokens": num_tokens, "temperature": 0, "ignore_eos": True},
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": self.bootstrap_port,
            "bootstrap_room": next(_ROOMS),
        }

    def is_empty(self) -> bool:
        return _is_empty(self.prefill) and _is_empty(self.decode)


@pytest.fixture(scope="module")
def start_pair(start_engine, tiny_llama, free_port) -> Callable[..., Pair]:
    def start(*flags: str) -> Pair:
        port = free_port()
        common = ("--model-path", str(tiny_llama), *_FLAGS, *flags)
        at = ("--disaggregation-bootstrap-port", str(port))
        return Pair(
            start_engine(*common, *at, "--disaggregation-mode", "prefill"),
            start_engine(*common, "--disaggregation-mode", "decode", "--heartbeat-interval", "60"),
            port,
        )

    return start


@pytest.fixture(scope="module")
def pair(start_pair) -> Pair:
    return start_pair()


@pytest.fixture(scope="module")
def hurried(start_pair) -> Pair:
    """Its heartbeats are so rare that decode notices a silent peer by its time-outs alone."""
    return start_pair("--bootstrap-timeout", "4", "--waiting-timeout", "3")


@pytest.fixture
def scripted(pair) -> Iterator[Decode]:
    peer = Decode(pair.bootstrap_port)
    yield peer
    peer.hang_up()
    wait_until(pair.is_empty)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as pool:
        yield pool


def test_a_bootstrap_time_out_is_told_by_the_half_that_waited(pool, hurried, free_port):
    alone = pool.submit(_generate, hurried.prefill, hurried.body())
    other = pool.submit(_generate, hurried.decode, hurried.body())
    nobody = pool.submit(_generate, hurried.decode, hurried.body() | {"bootstrap_port": free_port()})
    assert "no decode instance opened room" in _refusal(alone, 503)
    _refusal(other, 503)
    _refusal(nobody, 503)
    wait_until(hurried.is_empty)


def test_kv_that_does_not_arrive_in_time_is_an_error_and_its_pages_are_free(pool, hurried):
    assert _statuses(hurried.both(pool, hurried.body())) == [200, 200]
    hurried.prefill.signal(signal.SIGSTOP)
    try:
        theirs = pool.submit(_generate, hurried.decode, hurried.body())
        assert "did not arrive from" in _refusal(theirs, 503)
    finally:
        hurried.prefill.signal(signal.SIGCONT)
    wait_until(hurried.is_empty)
    assert _statuses(hurried.both(pool, hurried.body())) == [200, 200]


def test_a_full_receiver_lets_requests_wait_and_serves_them_all(pool, pair):
    """Each takes a sixth of decode's pool, prompt and answer."""
    prompt = [7] * (_PAGE_SIZE * _NUM_PAGES // 8)
    halves = [pair.both(pool, pair.body(prompt, num_tokens=60)) for _ in range(12)]
    assert all(_statuses(one) == [200, 200] for one in halves)
    wait_until(pair.is_empty)


def test_a_prompt_that_no_receiver_can_hold_is_refused_on_both_sides(pool, pair):
    halves = pair.both(pool, pair.body([7] * (_PAGE_SIZE * _NUM_PAGES + 1)))
    assert all(status in (400, 503) for status in _statuses(halves))
    wait_until(pair.is_empty)


def test_a_room_id_in_use_is_refused_and_can_be_used_again_afterwards(pool, pair):
    body = pair.body()
    ours = pool.submit(_generate, pair.prefill, body)
    wait_until(lambda: _stats(pair.prefill)["num_handshaking"] == 1)
    assert "is in use by another request" in _refusal(pool.submit(_generate, pair.prefill, body), 400)
    theirs = pool.submit(_generate, pair.decode, body)
    assert _statuses((ours, theirs)) == [200, 200]
    for _ in range(3):
        assert _statuses(pair.both(pool, body)) == [200, 200]


def test_lengths_that_lie_close_their_connection_alone(pool, pair):
    """On every port of both engines: HTTP, bootstrap, control and data."""
    running = pair.both(pool, pair.body(num_tokens=300))
    for engine in (pair.prefill, pair.decode):
        ports = _listening(engine.process.pid)
        assert len(ports) >= 2
        for port, lie in itertools.product(ports, _LIES):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as liar:
                liar.sendall(lie)
    assert _statuses(running) == [200, 200]
    assert _statuses(pair.both(pool, pair.body())) == [200, 200]
    assert "Traceback" not in pair.prefill.log + pair.decode.log


def test_notifications_that_come_twice_or_in_the_wrong_order_change_nothing(pool, pair, scripted):
    body = pair.body()
    room = body["bootstrap_room"]
    scripted.say(AbortRoom(room=room, ticket=5, reason="before it was opened"))
    assert scripted.hear() == AbortDone(room=room, ticket=5)
    scripted.allow(6)
    scripted.open(room, 6)
    scripted.open(room, 7)  # while it is taken
    assert _is_failed(scripted.hear(), 7)
    ours = pool.submit(_generate, pair.prefill, body)
    assert [type(scripted.hear()) for _ in range(2)] == [RoomState, RoomDone]
    assert ours.result().status_code == 200
    assert any(scripted.memory)
    for _ in range(2):  # after its end
        scripted.say(AbortRoom(room=room, ticket=6, reason="too late"))
        assert scripted.hear() == AbortDone(room=room, ticket=6)


def test_a_wrong_ticket_writes_nothing_and_fails_its_request_alone(pool, pair, scripted):
    """The receiver lets in another one than `OpenRoom` says."""
    body = pair.body()
    scripted.allow(78)
    scripted.open(body["bootstrap_room"], 77)
    assert "the KV transfer failed" in _refusal(pool.submit(_generate, pair.prefill, body), 503)
    assert not any(scripted.memory)
    assert _statuses(pair.both(pool, pair.body())) == [200, 200]


def test_ten_thousand_rooms_opened_and_abandoned_leave_nothing(pair):
    for ending in ("abort", "hang up"):
        peer = Decode(pair.bootstrap_port)
        rooms = [next(_ROOMS) for _ in range(5_000)]
        for room in rooms:
            peer.open(room, room, pages=(room % _NUM_PAGES,))
        if ending == "abort":
            for room in rooms:
                peer.say(AbortRoom(room=room, ticket=room, reason="changed my mind"))
            assert {peer.hear() for _ in rooms} == {AbortDone(room=room, ticket=room) for room in rooms}
        else:
            wait_until(lambda: _stats(pair.prefill)["extra"]["num_rooms"] == 5_000)
        peer.hang_up()
        wait_until(pair.is_empty)


def _is_failed(message: Message, ticket: int) -> bool:
    return isinstance(message, RoomState) and (message.state, message.ticket) == (KVPoll.Failed, ticket)


def _hello(endpoint: bytes) -> Hello:
    """Of an engine with the tiny model and our flags."""
    return Hello(
        version=PROTOCOL_VERSION,
        backend="tcp",
        attn_tp_size=1,
        attn_dp_size=1,
        num_layers=2,
        num_pages=_NUM_PAGES,
        page_size=_PAGE_SIZE,
        num_kv_heads=2,
        head_dim=16,
        dtype="float32",
        endpoints=(endpoint,),
        verify_kv=False,
    )


def _generate(engine: Any, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{engine.url}/generate", json=body, timeout=60)


def _statuses(halves: tuple[Half, Half]) -> list[int]:
    return [half.result().status_code for half in halves]


def _refusal(half: Half, status: int) -> str:
    response = half.result()
    assert response.status_code == status, response.text
    return response.text


def _stats(engine: Any) -> dict[str, Any]:
    return httpx.get(f"{engine.url}/server_info", timeout=30).json()["stats"]


def _is_empty(engine: Any) -> bool:
    stats = _stats(engine)
    in_use = [stats[name] for name in ("num_running", "num_waiting", "num_handshaking", "num_transferring")]
    in_use += [stats["extra"][name] for name in ("num_rooms", "num_reports")]
    return stats["num_free_pages"] == stats["num_pages"] and not any(in_use)


def _listening(pid: int) -> list[int]:
    """The TCP ports that a process listens on."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            inodes.add(str(fd.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes]
