"""The gate on the sending side: a socket that never blocks, driven by the thread that sends."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

from runtime.kv.page_runs import Write
from runtime.sockets import notice_vanished_peer
from runtime.transfer.one_sided.gate import MAGIC, Over, pack_ask, pack_over
from runtime.transfer.wire.frames import FrameError, PeerClosed, Status

_ANSWER = struct.Struct("!QB")
_READ_BYTES = 4096


class GateSocket:
    """Begins to connect at once; what is said before that is done waits. Raises OSError, also later."""

    def __init__(self, address: tuple[str, int]) -> None:
        family, _, _, _, resolved = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._unsent = bytearray(MAGIC)
        self._unread = bytearray()
        try:
            self._socket.connect(resolved)
        except BlockingIOError:
            pass
        except OSError:
            self._socket.close()
            raise
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        notice_vanished_peer(self._socket)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def ask(self, ticket: int, region_id: int, writes: Sequence[Write]) -> None:
        self._unsent += pack_ask(ticket, region_id, writes)

    def tell(self, over: Over) -> None:
        self._unsent += pack_over(over)

    def flush(self) -> None:
        """Send what the kernel takes. Raises OSError."""
        while self._unsent:
            try:
                num_bytes = self._socket.send(self._unsent)
            except BlockingIOError:
                return
            del self._unsent[:num_bytes]

    def answers(self) -> list[tuple[int, Status]]:
        """The answers (ticket, status) that have come. Raises OSError, PeerClosed, FrameError."""
        try:
            while received := self._socket.recv(_READ_BYTES):
                self._unread += received
                if len(received) < _READ_BYTES:
                    return self._take_answers()
        except BlockingIOError:
            return self._take_answers()
        raise PeerClosed("the receiver closed the gate")

    def close(self) -> None:
        self._socket.close()

    def _take_answers(self) -> list[tuple[int, Status]]:
        end = len(self._unread) // _ANSWER.size * _ANSWER.size
        found = list(_ANSWER.iter_unpack(bytes(self._unread[:end])))
        del self._unread[:end]
        try:
            return [(ticket, Status(status)) for ticket, status in found]
        except ValueError as error:
            raise FrameError(f"an answer that is none: {error}") from error
