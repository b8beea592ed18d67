"""A sender whose machine no longer answers, by what its socket then raises; a real cut would take minutes."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest

from runtime.kv.page_runs import Write
from runtime.sockets import VANISHED_AFTER_S, notice_vanished_peer
from runtime.transfer.one_sided.asking import GateSocket
from runtime.transfer.one_sided.gate import MAGIC, pack_ask
from runtime.transfer.one_sided.receiver import GateReceiver
from runtime.transfer.wire.frames import PeerClosed

_NEVER_S = 1e6


class Everywhere:
    def covers(self, offset: int, num_bytes: int) -> bool:
        return True


class Fabric:
    """Only what the gate asks of one."""

    name, max_writes_in_flight, needs_turns = "none", 1, False

    def __init__(self, drain_s: float) -> None:
        self.drain_s = drain_s


@pytest.fixture
def pair():
    """Two ends of one connection over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    yield ours, theirs
    ours.close()
    theirs.close()


class Vanishing:
    """A connection's socket; instead of its end it meets a time-out, as keepalive makes one."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def recvmsg_into(self, buffers):
        received = self._sock.recvmsg_into(buffers)
        if received[0] == 0:
            raise TimeoutError("timed out")
        return received

    def __getattr__(self, name: str):
        return getattr(self._sock, name)


def _begin(gate: GateReceiver, sender: socket.socket, receiver: socket.socket) -> threading.Event:
    """Get a write of ticket 1 under way, and revoke the ticket. Gives when it is quiet."""
    gate.allow(1, 0, Everywhere())
    threading.Thread(target=_serve, args=(gate, receiver), daemon=True).start()
    sender.sendall(MAGIC + pack_ask(1, 0, [Write(0, 0, 10)]))
    assert len(sender.recv(9)) == 9
    quiet = threading.Event()
    gate.revoke(1, quiet.set)
    assert not quiet.is_set()
    return quiet


def _serve(gate: GateReceiver, receiver: socket.socket) -> None:
    with suppress(PeerClosed, TimeoutError):
        gate.serve(receiver)


def test_a_cut_off_sender_drains_longer_than_its_fabric_says(pair):
    sender, receiver = pair
    gate = GateReceiver("127.0.0.1", Fabric(drain_s=0.01), partition_drain_s=_NEVER_S)
    quiet = _begin(gate, sender, Vanishing(receiver))
    sender.close()
    assert not quiet.wait(0.3)
    gate.close()


def test_a_cut_off_sender_does_not_keep_the_memory(pair):
    sender, receiver = pair
    gate = GateReceiver("127.0.0.1", Fabric(drain_s=0.01), partition_drain_s=0.05)
    quiet = _begin(gate, sender, Vanishing(receiver))
    sender.close()
    assert quiet.wait(10)
    gate.close()


def test_a_sender_that_died_drains_as_its_fabric_says(pair):
    sender, receiver = pair
    gate = GateReceiver("127.0.0.1", Fabric(drain_s=0.01), partition_drain_s=_NEVER_S)
    quiet = _begin(gate, sender, receiver)
    sender.close()
    assert quiet.wait(10)
    gate.close()


def test_only_receivers_count_what_was_not_acknowledged(pair):
    ours, theirs = pair
    notice_vanished_peer(ours)
    notice_vanished_peer(theirs, also_unanswered=True)
    for sock, user_timeout_ms in ((ours, 0), (theirs, 1000 * VANISHED_AFTER_S)):
        tcp = socket.IPPROTO_TCP
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle_s, interval_s, probes = (
            sock.getsockopt(tcp, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle_s + interval_s * probes == VANISHED_AFTER_S
        assert sock.getsockopt(tcp, socket.TCP_USER_TIMEOUT) == user_timeout_ms


def test_the_asking_end_of_a_gate_notices():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asking = GateSocket(listener.getsockname())
    with socket.socket(fileno=socket.dup(asking.fileno())) as seen:
        assert seen.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    asking.close()
