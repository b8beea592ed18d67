"""The threads that drive sessions: SGLang's `transfer queues`, to which receivers are dealt out.

A lane never waits for one receiver, so a slow one delays nobody, not even in its own lane.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from dataclasses import dataclass

from runtime.transfer.base import BackendOptions, TransferError
from runtime.transfer.one_sided.session import OneSidedSession, Pace

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 20e-6, 1e-3
_STALL_LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSizes:
    """How a rank's sends are spread; `threads` and `queues` mean what they mean to SGLang.

    There, threads // queues threads serve each queue, so that many batches of it are under way at once. Here
    one thread serves a queue without blocking, and the quotient is the number of batches per receiver.
    """

    num_queues: int
    num_in_flight: int  # batches of one receiver

    @classmethod
    def of(cls, options: BackendOptions, *, num_cpus: int | None = None) -> LaneSizes:
        """Raises TransferError for fewer threads than queues, which SGLang does not start with either."""
        num_threads = options.num_threads
        if num_threads is None:  # sglang srt/disaggregation/mooncake/conn.py
            num_threads = min(max(4, int(0.5 * (num_cpus or os.cpu_count() or 1)) // 8), 12)
        if not 1 <= options.num_queues <= num_threads:
            raise TransferError(
                f"{options.num_queues} transfer queues need as many threads, found {num_threads}"
            )
        return cls(num_queues=options.num_queues, num_in_flight=num_threads // options.num_queues)


class Lane:
    """One thread, which sleeps while none of its sessions has work."""

    def __init__(self, name: str) -> None:
        self._sessions: list[OneSidedSession] = []
        self._lock = threading.Lock()
        self._closed = False
        self._awake, self._waker = socket.socketpair()
        self._awake.setblocking(False)
        self._waker.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, session: OneSidedSession) -> None:
        with self._lock:
            self._sessions.append(session)
        self.wake()

    def wake(self) -> None:
        """May be called while a session's lock is held."""
        try:
            self._waker.send(b"!")
        except OSError:
            return  # it has been woken often enough, or the lane has ended

    def stop(self) -> list[OneSidedSession]:
        """End the thread. Gives the sessions that it leaves behind, for the caller to shut."""
        with self._lock:
            self._closed = True
        self.wake()
        self._thread.join()
        self._waker.close()
        with self._lock:
            return self._sessions

    def _run(self) -> None:
        pause_s = SHORTEST_PAUSE_S
        with self._awake:
            while not self._closed:
                pace = self._step_all()
                if pace is Pace.FLYING:
                    time.sleep(pause_s)
                    pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S)
                else:
                    pause_s = SHORTEST_PAUSE_S
                    self._listen(None if pace is Pace.IDLE else _STALL_LOOK_S)

    def _step_all(self) -> Pace:
        now_s = time.monotonic()
        with self._lock:
            sessions = list(self._sessions)
        paces = {session: session.step(now_s) for session in sessions}
        over = [session for session, pace in paces.items() if pace is Pace.OVER]
        if over:
            with self._lock:
                self._sessions = [session for session in self._sessions if session not in over]
        return max((pace for pace in paces.values() if pace is not Pace.OVER), default=Pace.IDLE)

    def _listen(self, timeout_s: float | None) -> None:
        """Wait for a gate to be ready, for a wake-up, or for the time to look for stalls."""
        poller = select.poll()
        poller.register(self._awake, select.POLLIN)
        for session in self._sessions:
            if session.gate is not None:
                poller.register(
                    session.gate, select.POLLIN | (select.POLLOUT if session.gate.has_unsent else 0)
                )
        poller.poll(None if timeout_s is None else timeout_s * 1000)
        try:
            while self._awake.recv(4096):
                pass
        except BlockingIOError:
            return
