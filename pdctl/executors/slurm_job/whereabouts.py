"""What has become of a deployment's job and of the steward in it, as far as it can be known from outside."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from pdctl.executors.deputy import Attendance
from pdctl.executors.slurm_job.commands import SlurmCommands
from pdctl.executors.slurm_job.faults import SlurmSilentError
from pdctl.executors.slurm_job.home import ExitRecord, Home, JobRecord, Tenure
from pdctl.executors.slurm_job.job import Job
from pdctl.executors.slurm_job.states import Fate
from pdctl.state.lock import Owner, is_dead

_BY_SLURM = {
    Fate.ENDED_WELL: "its batch part came to its end",
    Fate.FAILED: "its batch part failed",
    Fate.CANCELLED: "it was cancelled",
    Fate.TIMED_OUT: "it reached its time limit",
    Fate.PREEMPTED: "it was preempted",
    Fate.NODE_FAILED: "it lost a node",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Of one deployment. A controller that doesn't answer is `SlurmSilentError`: unknown, never gone."""

    home: Home
    job_name: str
    commands: SlurmCommands
    environ: Mapping[str, str]

    @property
    def own_job_id(self) -> int | None:
        """Of the allocation that this process is in."""
        found = self.environ.get("SLURM_JOB_ID", "")
        return int(found) if found.isdecimal() else None

    def job(self) -> Job | None:
        """The deployment's job, unless it is over: the one on record, else one that has its name."""
        record = self.home.job()
        found = None if record is None else self.commands.job(record.job_id)
        if found is not None and not found.fate.is_over:
            return found
        named = [job for job in self.commands.find(self.job_name) if not job.fate.is_over]
        # The user's own job may have that name; without a record, we are not at work in it.
        return next((job for job in reversed(named) if job.id != self.own_job_id), None)

    def attendance(self) -> Attendance:
        job = self.job()
        if job is None or job.fate is Fate.ENDING:
            return Attendance.NONE
        if job.fate.waits:
            return Attendance.AWAITED
        record = self.home.job()
        if record is None or record.job_id != job.id or record.owns_job:
            return Attendance.AT_WORK  # the job is nothing but the steward
        if record.state is Tenure.ENDED:
            return Attendance.NONE
        return Attendance.GONE if self.is_steward_dead(record) else Attendance.AT_WORK

    def is_steward_dead(self, record: JobRecord) -> bool:
        """Provably: only its own machine can tell."""
        return record.steward is not None and is_dead(record.steward)

    def is_over(self, owner: Owner) -> bool:
        """Whether the owner of a lock was a steward whose job, or process, is over."""
        record = self.home.job()
        steward = None if record is None else record.steward
        if record is None or steward is None or not is_same(owner, steward):
            return False
        if is_dead(steward):
            return True
        job = self.commands.job(record.job_id)
        return job is None or job.fate.is_over or job.num_restarts > record.generation

    def last_words(self) -> str | None:
        """How the last job ended. None: there was none, or it is not over."""
        record = self.home.job()
        return None if record is None else self._ending(record, self.commands.job(record.job_id))

    def remarks(self) -> tuple[str, ...]:
        """For `status`: why there are no nodes, what the steward has noticed, or that it is gone."""
        record = self.home.job()
        if record is None:
            return ()
        try:
            job = self.commands.job(record.job_id)
        except SlurmSilentError:
            return ("Slurm's controller doesn't answer: whether the job still runs is unknown",)
        if (words := self._ending(record, job)) is not None:
            return (words,)
        if job is not None and job.fate.waits:
            return (f"job {job.id} waits for its nodes: {job.reason or job.state}",)
        if self.is_steward_dead(record):
            return (f"the pdctl that worked in job {record.job_id} is gone: what runs is not watched",)
        return () if record.why is None else (record.why,)

    def _ending(self, record: JobRecord, job: Job | None) -> str | None:
        is_over = job is None or job.fate.is_over or (not record.owns_job and record.state is Tenure.ENDED)
        return how_it_ended(record, job, self.home.exit()) if is_over else None


def how_it_ended(record: JobRecord, job: Job | None, ended: ExitRecord | None) -> str:
    """`job 4711 ended at 2026-11-30 04:30:12: it reached its time limit`. Slurm's word, and the steward's."""
    own = ended if ended is not None and ended.job_id == record.job_id else None
    at = own.at if own is not None else None if job is None else job.ends_at
    when = "" if at is None else f" at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))}"
    by_slurm = None if job is None else _BY_SLURM.get(job.fate)
    if own is not None:
        return f"job {record.job_id} ended{when}: {own.reason}"
    if by_slurm is not None:
        return f"job {record.job_id} ended{when}: {by_slurm}"
    return f"job {record.job_id} is over, and neither Slurm nor the job itself has a record of its end"


def is_same(owner: Owner, steward: Owner) -> bool:
    """One process has a token for each act."""
    return (owner.host, owner.boot_id, owner.pid, owner.start_ticks) == (
        steward.host,
        steward.boot_id,
        steward.pid,
        steward.start_ticks,
    )
