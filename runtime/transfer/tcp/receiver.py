"""The receiving half of the TCP backend: writes land in registered memory, and only where a ticket allows.

Each connection has a thread, which reads a frame's header, checks every span of it against the ticket's
window, and then lets the kernel copy the payload straight into place.
"""

from __future__ import annotations

import logging
import socket
import threading
from dataclasses import dataclass, field

from runtime.sockets import open_listener
from runtime.transfer.base import Window
from runtime.transfer.tcp.frames import (
    Frame,
    FrameError,
    PeerClosed,
    Status,
    cut,
    read_frame,
    read_magic,
    receive_into,
    send_answer,
)

MAX_CONNECTIONS = 1024
_SCRATCH_BYTES = 1 << 16

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Grant:
    """Who may write where, and the connections whose payload is landing there right now."""

    region_id: int
    window: Window
    landing: set[socket.socket] = field(default_factory=set)


class TcpReceiver:
    """Listens on its own port. The windows are the only thing that its threads share, under one lock."""

    def __init__(self, host: str, regions: dict[int, memoryview]) -> None:
        self._regions = regions
        self._grants: dict[int, _Grant] = {}
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._listener = open_listener(host, 0, backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="kv-accept", daemon=True)
        self._thread.start()

    def allow(self, ticket: int, region_id: int, window: Window) -> None:
        with self._changed:
            self._grants[ticket] = _Grant(region_id=region_id, window=window)

    def revoke(self, ticket: int) -> None:
        """Take the window back. A payload that is landing costs its connection, so the wait is short."""
        with self._changed:
            grant = self._grants.pop(ticket, None)
            if grant is None:
                return
            for sock in grant.landing:
                _log.warning("cutting a KV connection: its request ended while a write was landing")
                cut(sock)
            self._changed.wait_for(lambda: not grant.landing)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            threads = [self._thread, *self._connections.values()]
            for sock in (self._listener, *self._connections):
                cut(sock)
        for thread in threads:
            thread.join()

    def _accept(self) -> None:
        with self._listener:
            while True:
                try:
                    sock, _ = self._listener.accept()
                except OSError:  # the listener was cut by `close`, or the process is out of descriptors
                    if self._closed:
                        return
                    _log.exception("cannot accept a KV connection")
                    continue
                self._start_reader(sock)

    def _start_reader(self, sock: socket.socket) -> None:
        with self._changed:
            if self._closed or len(self._connections) >= MAX_CONNECTIONS:
                _log.warning("refusing a KV connection: %d are open", len(self._connections))
                sock.close()
                return
            thread = threading.Thread(target=self._serve, args=(sock,), name="kv-receive", daemon=True)
            self._connections[sock] = thread
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            read_magic(sock)
            while True:
                self._take(sock, read_frame(sock))
        except PeerClosed:
            _log.debug("a KV connection ended")
        except (OSError, FrameError) as error:
            _log.warning("a KV connection failed: %s", error)
        finally:
            with self._changed:
                del self._connections[sock]
            sock.close()

    def _take(self, sock: socket.socket, frame: Frame) -> None:
        memory = self._regions.get(frame.region_id)
        num_bytes = sum(length for _, length in frame.spans)
        if memory is None or num_bytes > len(memory):
            raise FrameError(f"a frame of {num_bytes} bytes for region {frame.region_id}")
        grant = self._begin_landing(sock, frame)
        if grant is None:
            _drain(sock, num_bytes)
            send_answer(sock, frame.ticket, Status.NO_ROOM)
            return
        try:
            receive_into(sock, [memory[offset : offset + length] for offset, length in frame.spans])
        finally:
            with self._changed:
                grant.landing.discard(sock)
                self._changed.notify_all()
        send_answer(sock, frame.ticket, Status.APPLIED)

    def _begin_landing(self, sock: socket.socket, frame: Frame) -> _Grant | None:
        """Check the frame and mark its window as in use, in one step: no `revoke` falls between."""
        with self._changed:
            grant = self._grants.get(frame.ticket)
            if grant is None:
                return None
            if grant.region_id != frame.region_id:
                raise FrameError(
                    f"a write into region {frame.region_id}, the ticket is for {grant.region_id}"
                )
            for offset, length in frame.spans:
                if not grant.window.covers(offset, length):
                    raise FrameError(f"a write of {length} bytes at {offset}, outside the pages of its room")
            grant.landing.add(sock)
            return grant


def _drain(sock: socket.socket, num_bytes: int) -> None:
    scratch = memoryview(bytearray(min(num_bytes, _SCRATCH_BYTES)))
    while num_bytes:
        part = scratch[: min(num_bytes, len(scratch))]
        receive_into(sock, [part])
        num_bytes -= len(part)
