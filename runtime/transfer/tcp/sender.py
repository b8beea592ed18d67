"""The sending half of the TCP backend: one thread, one queue and one connection per receiver.

So a receiver that is slow, or gone, delays nobody else. The queue needs no bound of its own: what waits in it
are pages of the pool, which has one.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runtime.kv.page_runs import Write
from runtime.transfer.base import POOL, Completion
from runtime.transfer.tcp.receiver import MAGIC
from runtime.transfer.wire.frames import (
    MAX_WRITES,
    FrameError,
    PeerClosed,
    Status,
    cut,
    pack_frame,
    read_answer,
    send_buffers,
)

CONNECT_TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    ticket: int
    memory: memoryview
    region_id: int
    writes: tuple[Write, ...]
    on_done: Completion


class TcpSendSession:
    """Sends to one receiver. The first send connects, and so does the first one after a failure."""

    def __init__(
        self,
        address: tuple[str, int],
        regions: dict[int, memoryview],
        *,
        stall_timeout_s: float,
        count_bytes: Callable[[int], None],
    ) -> None:
        self._address = address
        self._regions = regions
        self._stall_timeout_s = stall_timeout_s
        self._count_bytes = count_bytes
        self._queue: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._socket: socket.socket | None = None  # replaced by the sender thread alone, under the lock
        self._thread = threading.Thread(target=self._run, name=f"kv-send-{address[1]}", daemon=True)
        self._thread.start()

    def send(
        self, ticket: int, writes: Sequence[Write], on_done: Completion, *, region_id: int = POOL
    ) -> None:
        job = _Job(
            ticket=ticket,
            memory=self._regions[region_id],
            region_id=region_id,
            writes=tuple(writes),
            on_done=on_done,
        )
        with self._wake:
            if not self._closed:
                self._queue.append(job)
                self._wake.notify()
                return
        on_done("the session is closed")

    def cancel(self, ticket: int) -> None:
        with self._wake:
            dropped = [job for job in self._queue if job.ticket == ticket]
            self._queue = deque(job for job in self._queue if job.ticket != ticket)
        for job in dropped:
            job.on_done("cancelled")

    def close(self) -> None:
        with self._wake:
            self._closed = True
            dropped, self._queue = self._queue, deque()
            if self._socket is not None:
                cut(self._socket)  # wakes the thread out of a blocked send
            self._wake.notify()
        for job in dropped:
            job.on_done("the session was closed")

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (job := self._next_job()) is not None:
            try:
                reason = self._transmit(job)
            except (OSError, PeerClosed, FrameError) as error:
                self._drop_connection()
                reason = f"sending to {self._address[0]}:{self._address[1]} failed: {error!r}"
                _log.warning("%s", reason)
            job.on_done(reason)
        self._drop_connection()

    def _next_job(self) -> _Job | None:
        with self._wake:
            self._wake.wait_for(lambda: self._closed or self._queue)
            return None if self._closed else self._queue.popleft()

    def _transmit(self, job: _Job) -> str | None:
        """Send a job, and wait for each frame's answer. Returns why the receiver did not take it."""
        sock = self._connection()
        for start in range(0, len(job.writes), MAX_WRITES):
            writes = job.writes[start : start + MAX_WRITES]
            header = memoryview(pack_frame(job.ticket, job.region_id, writes))
            payload = [job.memory[write.src_offset : write.src_offset + write.num_bytes] for write in writes]
            send_buffers(sock, [header, *payload])
            ticket, status = read_answer(sock)
            if ticket != job.ticket:
                raise FrameError(f"the answer is for ticket {ticket}, wanted {job.ticket}")
            if status is Status.NO_ROOM:
                return "the receiver no longer takes this request's KV"
            self._count_bytes(sum(write.num_bytes for write in writes))
        return None

    def _connection(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        sock = socket.create_connection(self._address, timeout=CONNECT_TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(self._stall_timeout_s)
        with self._wake:
            self._socket = sock
            if self._closed:
                raise PeerClosed("the session was closed")
        sock.sendall(MAGIC)
        return sock

    def _drop_connection(self) -> None:
        with self._wake:
            sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()
