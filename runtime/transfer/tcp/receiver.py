"""The receiving half of the TCP backend: writes land in registered memory, and only where a ticket allows.

A connection begins with MAGIC; then come frames, each with the bytes of its writes behind it, in order and
without padding. A frame is checked as a whole before the kernel copies its payload straight into place.
"""

from __future__ import annotations

import logging
import socket

from runtime.transfer.base import OnQuiet, Window
from runtime.transfer.wire.connections import Connections
from runtime.transfer.wire.frames import (
    Frame,
    FrameError,
    Status,
    cut,
    read_frame,
    read_magic,
    receive_into,
    send_answer,
)
from runtime.transfer.wire.grants import Grants, OutsideError

MAGIC = b"pdctlkv1"
_SCRATCH_BYTES = 1 << 16

_log = logging.getLogger(__name__)


class TcpReceiver:
    """Listens on its own port."""

    def __init__(self, host: str, regions: dict[int, memoryview]) -> None:
        self._regions = regions
        self._grants = Grants()
        self._connections = Connections(host, self._serve)

    @property
    def port(self) -> int:
        return self._connections.port

    def allow(self, ticket: int, region_id: int, window: Window) -> None:
        self._grants.allow(ticket, region_id, window)

    def revoke(self, ticket: int, on_quiet: OnQuiet) -> None:
        """Take the window back. A payload that is landing costs its connection, so the wait is short."""
        for sock in self._grants.revoke(ticket, on_quiet):
            assert isinstance(sock, socket.socket)
            _log.warning("cutting a KV connection: its request ended while a write was landing")
            cut(sock)

    def close(self) -> None:
        self._connections.close()

    def _serve(self, sock: socket.socket) -> None:
        read_magic(sock, MAGIC)
        while True:
            self._take(sock, read_frame(sock))

    def _take(self, sock: socket.socket, frame: Frame) -> None:
        memory = self._regions.get(frame.region_id)
        num_bytes = sum(length for _, length in frame.spans)
        if memory is None or num_bytes > len(memory):
            raise FrameError(f"a frame of {num_bytes} bytes for region {frame.region_id}")
        try:
            grant = self._grants.begin(sock, frame)
        except OutsideError as error:
            raise FrameError(str(error)) from error
        if grant is None:
            _drain(sock, num_bytes)
            send_answer(sock, frame.ticket, Status.NO_ROOM)
            return
        try:
            receive_into(sock, [memory[offset : offset + length] for offset, length in frame.spans])
        finally:
            self._grants.end(sock, grant)
        send_answer(sock, frame.ticket, Status.DONE)


def _drain(sock: socket.socket, num_bytes: int) -> None:
    scratch = memoryview(bytearray(min(num_bytes, _SCRATCH_BYTES)))
    while num_bytes:
        part = scratch[: min(num_bytes, len(scratch))]
        receive_into(sock, [part])
        num_bytes -= len(part)
