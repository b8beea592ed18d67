"""One receiver's sends: from a queue, through the gate and the library, to their `on_done`.

    pending ──ASK──> asked ──answer──> granted ──post──> flying ──applied or failed──> OVER

`send`, `cancel` and `close` come from any thread and only touch what `_lock` guards. All else belongs to the
lane's thread, which calls `step` again and again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from runtime.kv.page_runs import Write
from runtime.transfer.base import POOL, Completion, TransferError
from runtime.transfer.one_sided.asking import GateSocket
from runtime.transfer.one_sided.fabric import Copy, Flight, Peer
from runtime.transfer.one_sided.gate import Over
from runtime.transfer.wire.frames import FrameError, PeerClosed, Status

_REFUSALS = {
    Status.NO_ROOM: "the receiver no longer takes this request's KV",
    Status.OUTSIDE: "the receiver does not expect this request's KV there",
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Registered memory, by its address in the process that registered it."""

    address: int
    num_bytes: int
    device: int | None = None  # the accelerator there; None: host memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way to one receiver, and how much may be under way on it."""

    name: str
    gate: tuple[str, int]
    open_peer: Callable[[], Peer]
    local: Mapping[int, Region]
    remote: Mapping[int, Region]
    num_in_flight: int  # batches
    max_writes: int  # of one batch
    stall_timeout_s: float


class Pace(IntEnum):
    """When a session wants its next `step`."""

    IDLE = 0  # when there is something to send
    LISTENING = 1  # when the gate's socket is ready
    FLYING = 2  # soon: libraries have to be asked
    OVER = -1  # never: it is closed


@dataclass(slots=True, kw_only=True, eq=False)
class _Job:
    """One `send`. `on_done` is called when nothing of it is left, or its fate is sealed by a stall."""

    ticket: int
    region_id: int
    on_done: Completion
    num_left: int  # batches
    num_bytes: int
    reason: str | None = None
    is_told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Batch:
    job: _Job
    writes: tuple[Write, ...]


class OneSidedSession:
    """A `SendSession`; see the top of the file."""

    def __init__(self, route: Route, *, wake: Callable[[], None], count_bytes: Callable[[int], None]) -> None:
        self._route = route
        self._wake = wake
        self._count_bytes = count_bytes
        self._lock = threading.Lock()
        self._pending: deque[_Batch] = deque()
        self._closed = False
        self._asked: deque[_Batch] = deque()
        self._granted: deque[_Batch] = deque()
        self._flying: list[tuple[_Batch, Flight]] = []
        self._gate: GateSocket | None = None
        self._peer: Peer | None = None
        self._progress_s = 0.0  # when something last moved, or began

    # From any thread.

    def send(
        self, ticket: int, writes: Sequence[Write], on_done: Completion, *, region_id: int = POOL
    ) -> None:
        fault = self._fault(writes, region_id)
        size = self._route.max_writes
        batches = [tuple(writes[start : start + size]) for start in range(0, len(writes), size)]
        job = _Job(
            ticket=ticket,
            region_id=region_id,
            on_done=on_done,
            num_left=len(batches),
            num_bytes=sum(write.num_bytes for write in writes),
        )
        with self._lock:
            if self._closed:
                fault = "the session is closed"
            if fault is None and batches:
                self._pending.extend(_Batch(job=job, writes=batch) for batch in batches)
                self._wake()
                return
        on_done(fault)

    def cancel(self, ticket: int) -> None:
        with self._lock:
            dropped = [batch for batch in self._pending if batch.job.ticket == ticket]
            self._pending = deque(batch for batch in self._pending if batch.job.ticket != ticket)
        for batch in dropped:
            self._finish(batch, "cancelled")

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._wake()

    # From the lane's thread.

    @property
    def gate(self) -> GateSocket | None:
        """What to listen to between two steps."""
        return self._gate

    def step(self, now_s: float) -> Pace:
        """Do what can be done without waiting."""
        if self._closed:
            self._drop_all("the session was closed")
            if not self._flying:
                self.shut()
                return Pace.OVER
        elif not self._is_busy:
            self._progress_s = now_s
        try:
            # In this order what ends makes place for what comes next, so nothing is left that could be done.
            self._poll(now_s)
            self._hear(now_s)
            self._post()
            self._ask()
            if self._gate is not None:
                self._gate.flush()
        except (OSError, PeerClosed, FrameError) as error:
            self._lose_gate(f"{self._route.name} is lost: {error!r}")
        self._check_stall(now_s)
        if self._flying:
            return Pace.FLYING
        return Pace.LISTENING if self._is_busy or self._pending else Pace.IDLE

    def shut(self, reason: str = "the backend was closed") -> None:
        """Answer what is left, and close the gate. The library must not be writing any more, or be closed."""
        self._drop_all(reason)
        for batch, _ in self._flying:
            self._finish(batch, reason)
        self._flying.clear()
        if self._gate is not None:
            self._gate.close()
        if self._peer is not None:
            self._peer.close()
        self._gate = self._peer = None

    @property
    def _is_busy(self) -> bool:
        return bool(self._asked or self._granted or self._flying)

    def _fault(self, writes: Sequence[Write], region_id: int) -> str | None:
        """Libraries differ in what they check; Mooncake's sockets read memory that nobody registered."""
        local, remote = self._route.local.get(region_id), self._route.remote.get(region_id)
        if local is None or remote is None:
            return f"region {region_id} is not registered on {'this side' if local is None else 'both sides'}"
        for write in writes:
            if write.num_bytes < 1 or min(write.src_offset, write.dst_offset) < 0:
                return f"a write of {write.num_bytes} bytes from {write.src_offset} to {write.dst_offset}"
            if write.src_offset + write.num_bytes > local.num_bytes:
                return f"a write from {write.src_offset}, the region here has {local.num_bytes} bytes"
            if write.dst_offset + write.num_bytes > remote.num_bytes:
                return f"a write to {write.dst_offset}, the region there has {remote.num_bytes} bytes"
        return None

    def _ask(self) -> None:
        """Ask for the batches of the next flights while the present ones are under way."""
        while len(self._asked) + len(self._granted) < self._route.num_in_flight:
            with self._lock:
                if not self._pending:
                    return
                batch = self._pending.popleft()
            if batch.job.reason is not None:
                self._finish(batch, batch.job.reason)
                continue
            self._asked.append(batch)
            if self._gate is None:
                self._gate = GateSocket(self._route.gate)
            self._gate.ask(batch.job.ticket, batch.job.region_id, batch.writes)

    def _hear(self, now_s: float) -> None:
        if self._gate is None:
            return
        self._gate.flush()
        for ticket, status in self._gate.answers():
            if not self._asked or self._asked[0].job.ticket != ticket:
                raise FrameError(f"an answer for ticket {ticket} that nobody asked for")
            batch = self._asked.popleft()
            self._progress_s = now_s
            if status is Status.DONE:
                self._granted.append(batch)
            else:
                self._finish(batch, _REFUSALS[status])

    def _post(self) -> None:
        while self._granted and len(self._flying) < self._route.num_in_flight:
            batch = self._granted.popleft()
            if batch.job.reason is not None:  # cancelled, or failed in another part
                self._end(batch, batch.job.reason, is_broken=False)
                continue
            try:
                if self._peer is None:
                    self._peer = self._route.open_peer()
                self._flying.append((batch, self._peer.post(self._copies(batch))))
            except TransferError as error:
                self._end(batch, f"{self._route.name}: {error}", is_broken=True)

    def _poll(self, now_s: float) -> None:
        flying, self._flying = self._flying, []
        for batch, flight in flying:
            try:
                if not flight.is_applied():
                    self._flying.append((batch, flight))
                    continue
                reason = None
            except TransferError as error:
                reason = f"{self._route.name}: {error}"
            self._progress_s = now_s
            self._end(batch, reason, is_broken=reason is not None)

    def _copies(self, batch: _Batch) -> list[Copy]:
        src, dst = (side[batch.job.region_id] for side in (self._route.local, self._route.remote))
        return [
            Copy(
                src.address + write.src_offset,
                dst.address + write.dst_offset,
                write.num_bytes,
                src.device,
                dst.device,
            )
            for write in batch.writes
        ]

    def _end(self, batch: _Batch, reason: str | None, *, is_broken: bool) -> None:
        """The library is through with a batch that had been granted: the receiver has to know."""
        if self._gate is not None:  # else it was lost, and the receiver drains what we had begun
            self._gate.tell(Over(ticket=batch.job.ticket, is_broken=is_broken))
        if reason is None:
            self._count_bytes(sum(write.num_bytes for write in batch.writes))
        self._finish(batch, reason)

    def _finish(self, batch: _Batch, reason: str | None) -> None:
        job = batch.job
        with self._lock:
            job.reason = job.reason or reason
            job.num_left -= 1
            is_last, job.is_told = not job.num_left and not job.is_told, job.is_told or not job.num_left
        if is_last:
            job.on_done(job.reason)

    def _check_stall(self, now_s: float) -> None:
        """Give up the jobs of a receiver that stands still. What flies stays granted: it may go on later."""
        if not self._is_busy or now_s - self._progress_s < self._route.stall_timeout_s:
            return
        self._progress_s = now_s
        with self._lock:
            batches = [*self._asked, *self._granted, *(batch for batch, _ in self._flying), *self._pending]
            jobs = {id(batch.job): batch.job for batch in batches if not batch.job.is_told}.values()
            for job in jobs:
                job.reason = f"{self._route.name} made no progress for {self._route.stall_timeout_s:g} s"
                job.is_told = True
        for job in jobs:
            _log.warning("%s", job.reason)
            job.on_done(job.reason)

    def _drop_all(self, reason: str) -> None:
        with self._lock:
            dropped = [*self._asked, *self._granted, *self._pending]
            self._pending.clear()
        self._asked.clear()
        self._granted.clear()
        for batch in dropped:
            self._finish(batch, reason)

    def _lose_gate(self, reason: str) -> None:
        """Fail what had been asked for. What flies is the library's; later sends try again."""
        lost = [*self._asked, *self._granted]
        if lost:
            _log.warning("%s", reason)
        self._asked.clear()
        self._granted.clear()
        if self._gate is not None:
            self._gate.close()
            self._gate = None
        for batch in lost:
            self._finish(batch, reason)
