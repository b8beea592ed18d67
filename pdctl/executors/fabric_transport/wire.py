"""What lies between a transport of paramiko and the network, made for hundreds of connections at a time.

As it comes, paramiko reads each packet in three pieces, has a thread per connection only to time its
handshake, compares checksums byte by byte in Python, and wakes every idle connection ten times a second.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence

from paramiko.packet import Packetizer

IDLE_WAKE_S = (
    0.5  # how often a connection in silence looks whether it should send a keepalive, or has been closed
)
_READ_BYTES = 32 << 10

# Encryption that needs no checksum beside it; as safe as the others, and half the work of a packet in Python.
_SWIFT_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")


def swift_first(ciphers: Sequence[str]) -> tuple[str, ...]:
    return (
        *(each for each in _SWIFT_CIPHERS if each in ciphers),
        *(each for each in ciphers if each not in _SWIFT_CIPHERS),
    )


class ReadAheadSocket:
    """A connected socket, as far as a transport needs one. One thread reads; any may send or close."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._ahead: bytes = b""
        self._position = 0  # in what was read ahead

    @property
    def _closed(self) -> bool:  # by this name a transport asks
        return self._socket.fileno() < 0

    def recv(self, num_bytes: int) -> bytes:
        if self._position == len(self._ahead):
            self._ahead, self._position = self._socket.recv(_READ_BYTES), 0
        start = self._position
        taken = self._ahead[start : start + num_bytes]
        self._position += len(taken)
        return taken

    def send(self, content: bytes) -> int:
        return self._socket.send(content)

    def settimeout(self, timeout_s: float) -> None:
        self._socket.settimeout(max(timeout_s, IDLE_WAKE_S))

    def getpeername(self) -> object:
        return self._socket.getpeername()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the other side was faster
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads
        self._socket.close()


class ClockedPacketizer(Packetizer):
    """Times the handshake by the clock, where a thread for each would be started."""

    _handshake_ends_at: float | None = None  # on the monotonic clock

    def start_handshake(self, timeout: float) -> None:
        self._handshake_ends_at = time.monotonic() + timeout

    def handshake_timed_out(self) -> bool:
        return self._handshake_ends_at is not None and time.monotonic() >= self._handshake_ends_at

    def complete_handshake(self) -> None:
        self._handshake_ends_at = None
