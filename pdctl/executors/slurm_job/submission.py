"""One submission, so that no job is submitted twice and none is lost.

An `sbatch` that gets no answer may still have submitted: the controller had the request and was slow, and the
job appears once it wakes up. Seen with Slurm 22.05 and a slurmctld that was stopped for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pdctl.clock import Clock, SystemClock
from pdctl.diagnostics import Diagnostic
from pdctl.executors.slurm_job.faults import SlurmSilentError
from pdctl.executors.slurm_job.job import Job
from pdctl.executors.slurm_job.request import JobRequest

PATIENCE_S = 300.0  # with a controller that is away while it stays open whether there is a job
SETTLE_S = 5.0  # a controller that is back works off what it had received meanwhile
PAUSE_S = 0.5
MAX_SILENCES = 3


class _Jobs(Protocol):
    def find(self, job_name: str) -> tuple[Job, ...]: ...

    def ping(self) -> bool: ...

    def cancel(self, job_id: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    commands: _Jobs
    request: JobRequest
    clock: Clock = field(default_factory=SystemClock)

    def carry_out(self, submit_once: Callable[[], int]) -> int:
        """The id of the one job that came of it."""
        before = {job.id for job in self.commands.find(self.request.job_name)}  # silence here submits nothing
        num_silences = 0
        while True:
            try:
                job_id = submit_once()
            except SlurmSilentError as error:
                num_silences += 1
                if (found := self._look(before)) is not None:
                    return found
                if num_silences >= MAX_SILENCES:
                    raise self._open() from error
                continue  # the controller is back and has no such job
            if num_silences:  # should an earlier request have come through after all, there are two
                for other in self._ours(before) - {job_id}:
                    self.commands.cancel(other)
            return job_id

    def _look(self, before: set[int]) -> int | None:
        """Wait for the controller, and for what it had received; None when no job came of it."""
        gives_up_at = self.clock.now() + PATIENCE_S
        while True:
            try:
                return self._look_once(before)
            except SlurmSilentError as error:
                if self.clock.now() > gives_up_at:
                    raise self._open() from error
            # Asking a dead controller takes long, pinging it doesn't.
            while not self.commands.ping() and self.clock.now() <= gives_up_at:
                self.clock.sleep(PAUSE_S)

    def _look_once(self, before: set[int]) -> int | None:
        settled_at = self.clock.now() + SETTLE_S
        while True:
            if ours := self._ours(before):
                return min(ours)
            if self.clock.now() > settled_at:
                return None
            self.clock.sleep(PAUSE_S)

    def _ours(self, before: set[int]) -> set[int]:
        """By the comment; by the name where a site writes comments of its own."""
        jobs = self.commands.find(self.request.job_name)
        commented = {job.id for job in jobs if job.comment == self.request.comment}
        return commented or {job.id for job in jobs} - before

    def _open(self) -> SlurmSilentError:
        name = self.request.job_name
        return SlurmSilentError(
            [
                Diagnostic(
                    code="PD535",
                    message=f"it is open whether job `{name}` was submitted",
                    notes=(
                        f"Slurm's controller took the request or not, and is silent since {PATIENCE_S:g} s",
                    ),
                    help=f"once it answers again, `up` finds the job, if there is one; or `squeue -n {name}`",
                )
            ]
        )
