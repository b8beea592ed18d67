"""Control links over real sockets: up, words, heartbeat, and every way down."""

from __future__ import annotations

import queue
import socket
import struct
from collections.abc import Iterator

import pytest

from runtime.control.messages import MAX_FRAME_BYTES, Message, OpenRoom, Ping, Refused, Welcome, pack_message
from runtime.control.network import ControlNetwork


class Ear:
    """Collects what a network reports."""

    def __init__(self) -> None:
        self.ups: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.messages: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()
        self.downs: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()

    def on_up(self, link_id: int) -> None:
        self.ups.put(link_id)

    def on_message(self, link_id: int, message: Message) -> None:
        self.messages.put((link_id, message))

    def on_down(self, link_id: int, reason: str) -> None:
        self.downs.put((link_id, reason))


@pytest.fixture
def ends() -> Iterator[list[ControlNetwork]]:
    opened: list[ControlNetwork] = []
    yield opened
    for network in opened:
        network.close()


def _open(ends: list[ControlNetwork], interval_s: float = 0.5) -> tuple[ControlNetwork, Ear]:
    ear = Ear()
    network = ControlNetwork(ear, heartbeat_interval_s=interval_s)
    ends.append(network)
    return network, ear


def _connect(ends, interval_s=0.5):
    server, server_ear = _open(ends, interval_s)
    client, client_ear = _open(ends, interval_s)
    link_id = client.dial("127.0.0.1", server.listen("127.0.0.1"))
    assert client_ear.ups.get(timeout=5) == link_id
    return server, server_ear, server_ear.ups.get(timeout=5), client, client_ear, link_id


def test_messages_arrive_in_order_in_both_directions(ends):
    server, server_ear, theirs, client, client_ear, ours = _connect(ends)
    sent = [
        OpenRoom(room=n, ticket=n, attn_dp_rank=0, prompt_len=1, pages=tuple(range(n))) for n in range(200)
    ]
    for message in sent:
        client.send(ours, message)
        server.send(theirs, Welcome(version=message.room))
    assert [server_ear.messages.get(timeout=5)[1] for _ in sent] == sent
    assert [client_ear.messages.get(timeout=5)[1].version for _ in sent] == list(range(200))


def test_heartbeats_keep_an_idle_link_alive(ends):
    _, server_ear, _, _, client_ear, _ = _connect(ends, interval_s=0.15)
    with pytest.raises(queue.Empty):
        client_ear.downs.get(timeout=0.9)  # twice the time after which a silent peer is dead
    assert server_ear.downs.empty()
    assert server_ear.messages.empty()  # pings are not reported


def test_both_ends_hear_of_the_end(ends):
    server, server_ear, theirs, client, client_ear, ours = _connect(ends)
    client.close_link(ours, "enough")
    assert client_ear.downs.get(timeout=5) == (ours, "enough")
    down, reason = server_ear.downs.get(timeout=5)
    assert down == theirs
    assert _is_broken(reason)
    server.send(theirs, Ping())  # into the void


def test_the_last_words_before_a_close_arrive(ends):
    server, _, theirs, _, client_ear, ours = _connect(ends)
    server.send(theirs, Refused(reason="no"))
    server.close_link(theirs, "refused")
    assert client_ear.messages.get(timeout=5) == (ours, Refused(reason="no"))
    assert client_ear.downs.get(timeout=5)[0] == ours


def test_a_port_that_nobody_serves_is_a_link_that_is_down(ends):
    client, ear = _open(ends)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    link_id = client.dial("127.0.0.1", port)
    down, reason = ear.downs.get(timeout=5)
    assert down == link_id
    assert reason.startswith("cannot connect")


def test_a_silent_peer_is_down(ends):
    client, ear = _open(ends, interval_s=0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        link_id = client.dial("127.0.0.1", silent.getsockname()[1])
        assert ear.downs.get(timeout=5) == (link_id, "the peer was silent for 0.15 s")


@pytest.mark.parametrize(
    "nonsense",
    [
        struct.pack("!I", MAX_FRAME_BYTES + 1),
        struct.pack("!I", 2**32 - 1),
        struct.pack("!I", 3) + b"abc",
        pack_message(Ping())[:-1] + b"\xc1",
    ],
)
def test_a_bad_frame_closes_its_link_alone(ends, nonsense):
    server, ear = _open(ends)
    port = server.listen("127.0.0.1")
    client, client_ear = _open(ends)
    client.dial("127.0.0.1", port)
    ear.ups.get(timeout=5)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        bad = ear.ups.get(timeout=5)
        sock.sendall(nonsense)
        down, reason = ear.downs.get(timeout=5)
    assert down == bad
    assert "bad message" in reason
    assert client_ear.downs.empty()


def test_a_peer_that_does_not_read_is_given_up(ends):
    server, ear = _open(ends, interval_s=5.0)
    with socket.create_connection(("127.0.0.1", server.listen("127.0.0.1")), timeout=5):
        link_id = ear.ups.get(timeout=5)
        big = OpenRoom(room=1, ticket=1, attn_dp_rank=0, prompt_len=1, pages=tuple(range(100_000, 500_000)))
        for _ in range(60):
            server.send(link_id, big)
        assert ear.downs.get(timeout=10) == (link_id, "the peer does not read its messages")


def test_a_closed_network_is_silent(ends):
    _, server_ear, _, client, _, ours = _connect(ends)
    client.close()
    client.close()
    client.send(ours, Ping())
    assert _is_broken(server_ear.downs.get(timeout=5)[1])


def _is_broken(reason: str) -> bool:
    """A close with a ping unread in the other's buffer reads as a reset."""
    return reason == "the peer closed the connection" or "reset by peer" in reason
