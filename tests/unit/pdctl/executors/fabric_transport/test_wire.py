from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from paramiko import Transport

from pdctl.executors.fabric_transport.wire import ClockedPacketizer, ReadAheadSocket, swift_first

Pair = tuple[ReadAheadSocket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ReadAheadSocket(ours), theirs


def test_pieces_come_in_order_whatever_their_size(pair: Pair):
    ours, theirs = pair
    theirs.sendall(b"abcdefgh")
    assert [ours.recv(3), ours.recv(1), ours.recv(100)] == [b"abc", b"d", b"efgh"]
    theirs.sendall(b"ij")
    theirs.close()
    assert [ours.recv(1), ours.recv(5), ours.recv(5)] == [b"i", b"j", b""]


def test_what_has_come_is_there_without_another_look_at_the_network(pair: Pair):
    ours, theirs = pair
    theirs.sendall(b"abc")
    ours.recv(1)
    theirs.close()
    ours.close()
    assert ours.recv(2) == b"bc"


def test_closing_wakes_the_thread_that_reads(pair: Pair):
    ours, _theirs = pair
    ours.settimeout(3600.0)

    def read() -> None:
        with contextlib.suppress(OSError):  # closed before it began to read
            ours.recv(1)

    reader = threading.Thread(target=read)
    reader.start()
    ours.close()
    reader.join(20)
    assert not reader.is_alive()


def test_silence_is_a_time_out(pair: Pair):
    ours, _theirs = pair
    ours.settimeout(0.1)
    with pytest.raises(TimeoutError):
        ours.recv(1)


def test_a_handshake_ends_by_the_clock_unless_it_is_complete(pair: Pair):
    packetizer = ClockedPacketizer(pair[1])
    assert not packetizer.handshake_timed_out()
    packetizer.start_handshake(0.0)
    assert packetizer.handshake_timed_out()
    packetizer.complete_handshake()
    assert not packetizer.handshake_timed_out()


def test_the_order_of_ciphers_changes_and_nothing_else(pair: Pair):
    offered = Transport(pair[1]).get_security_options().ciphers
    swift = swift_first(offered)
    assert swift[0] == "aes128-gcm@openssh.com"
    assert sorted(swift) == sorted(offered)
    assert swift_first(("aes128-ctr",)) == ("aes128-ctr",)
