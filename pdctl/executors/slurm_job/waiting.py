"""Wait for what a steward makes of a request: first for its nodes, then for it."""

from __future__ import annotations

import itertools
import subprocess
from dataclasses import dataclass

from pdctl.clock import Clock
from pdctl.diagnostics import Diagnostic, DiagnosticError, Excerpt
from pdctl.events import Allocated, EventSink, Queued
from pdctl.executors.deputy import Request
from pdctl.executors.slurm_job.faults import SlurmSilentError
from pdctl.executors.slurm_job.home import JobRecord
from pdctl.executors.slurm_job.job import Job
from pdctl.executors.slurm_job.mailbox import EventReading
from pdctl.executors.slurm_job.states import is_hopeless
from pdctl.executors.slurm_job.whereabouts import Whereabouts, how_it_ended
from pdctl.fields import Fields
from pdctl.hostlist import unfold
from pdctl.state.files import read_file

POLL_S = 0.1
SLOWEST_POLL_S = 1.0
LOOK_EVERY_S = 2.0  # at the job, while it waits or its steward is quiet
LAST_LINES = 15
NUM_LAST_LOOKS = 5
SILENT_STEWARD_S = 60.0  # a steward whose beat stands still so long is gone


@dataclass(slots=True, kw_only=True)
class Waiting:
    """For one request, by one operator. Made for a single `until_done`."""

    request: Request
    where: Whereabouts
    reading: EventReading
    clock: Clock
    sink: EventSink
    child: subprocess.Popen[bytes] | None = None  # the steward, where we have started it
    is_allocated: bool  # False: its nodes have not been told yet
    _began: float = 0.0
    _looked_at: float = float("-inf")
    _beat: tuple[int, int] = (0, 0)  # generation and beat
    _beat_at: float = 0.0

    def until_done(self) -> Fields:
        """What the steward made of it. Raises `DiagnosticError` with what it told, or when it is gone."""
        self._began = self._beat_at = self.clock.now()
        pause_s = POLL_S
        while True:
            found = self._read()
            if found is not None:
                return found
            if self.clock.now() - self._looked_at >= LOOK_EVERY_S:
                end = self._look()
                if end is not None:
                    return self._last_line(end)
                self._looked_at = self.clock.now()
            self.clock.sleep(pause_s)
            pause_s = min(1.2 * pause_s, SLOWEST_POLL_S)

    def _read(self) -> Fields | None:
        told = self.reading.more()
        for _, events in itertools.groupby(told.events, key=type):  # alike ones are told in one line
            self.sink.on(*events)
        if told.diagnostics or told.outcome is not None:
            self.reading.forget()
        if told.diagnostics:
            raise DiagnosticError(told.diagnostics)
        return told.outcome

    def _last_line(self, end: Diagnostic) -> Fields:
        """It may have come just before the end, over a file system that shows it late."""
        for _ in range(NUM_LAST_LOOKS):
            self.clock.sleep(POLL_S)
            found = self._read()
            if found is not None:
                return found
        raise DiagnosticError([end])

    def _look(self) -> Diagnostic | None:
        """At the job; what to say when there is nobody any more who works on the request."""
        record = self.where.home.job()
        if record is None:
            return None  # another operator's pdctl writes it in a moment
        try:
            job = self.where.commands.job(record.job_id)
            if job is None or job.fate.is_over or self._is_steward_gone(record):
                return self._fault(record, job)
            self._say_place(job)
        except SlurmSilentError:
            if not self.is_allocated:
                self._say_queued(record.job_id, "Slurm's controller doesn't answer", None)
        return None

    def _say_place(self, job: Job) -> None:
        if job.fate.waits:
            self.is_allocated = False
            reason = job.reason or job.state
            word = f"{reason}, which doesn't change by itself" if is_hopeless(job.reason) else reason
            self._say_queued(job.id, word, self.where.commands.estimated_start(job.id))
        elif not self.is_allocated and job.nodelist is not None:
            self.is_allocated = True
            self.sink.on(Allocated(job_id=job.id, nodes=unfold(job.nodelist)))

    def _say_queued(self, job_id: int, reason: str, starts_at: float | None) -> None:
        self.sink.on(
            Queued(
                job_id=job_id,
                reason=reason,
                elapsed_s=self.clock.now() - self._began,
                starts_in_s=None if starts_at is None else max(0.0, starts_at - self.clock.wall()),
            )
        )

    def _is_steward_gone(self, record: JobRecord) -> bool:
        """In a job that goes on without it. Its own machine knows at once, others by its beat."""
        if record.owns_job:
            return False
        if self.where.is_steward_dead(record) or (self.child is not None and self.child.poll() is not None):
            return True
        if self._beat != (record.generation, record.beat):
            self._beat, self._beat_at = (record.generation, record.beat), self.clock.now()
        return self.clock.now() - self._beat_at > SILENT_STEWARD_S

    def _fault(self, record: JobRecord, job: Job | None) -> Diagnostic:
        home = self.where.home
        log = home.batch_log(record.job_id) if record.owns_job else home.steward_log
        lines = tuple((read_file(log) or b"").decode(errors="replace").splitlines()[-LAST_LINES:])
        ended = how_it_ended(record, job, home.exit())
        if not record.owns_job and (job is None or not job.fate.is_over):
            ended = f"the pdctl that worked in job {record.job_id} is gone"
        return Diagnostic(
            code="PD543",
            message=f"{ended}, before `{self.request.verb}` was done",
            notes=(f"what it printed is in `{log}`",),
            help="mend the cause and run `pdctl up` again",
            excerpts=(Excerpt(title=f"last lines of `{log.name}`", lines=lines),) if lines else (),
        )
