"""The steward's own place in a job: that it is the only one, how it fares, and how it left."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.slurm_job.commands import SlurmCommands
from pdctl.executors.slurm_job.faults import SlurmError
from pdctl.executors.slurm_job.home import ExitRecord, Home, JobRecord, Tenure, home_of
from pdctl.executors.slurm_job.job import Job, JobNode
from pdctl.executors.slurm_job.place import Allocation, own_allocation
from pdctl.executors.slurm_job.request import job_name
from pdctl.executors.slurm_job.whereabouts import Whereabouts
from pdctl.hostlist import fold
from pdctl.state.lock import Owner, this_owner
from pdctl.topology.slurm import Slurm

BEAT_EVERY_S = 5.0


def open_office(slurm: Slurm, deployment: str, environ: Mapping[str, str]) -> Office:
    """In the allocation that this process is a part of. Raises PD542 where there is none."""
    allocation = own_allocation(environ)
    if allocation is None:
        raise DiagnosticError.one(
            "PD542",
            "`--foreground` works inside a Slurm job, and this is none: SLURM_JOB_ID is not set",
            help="leave it out to submit a job, or run this command in a batch script or under `salloc`",
        )
    home = home_of(deployment, run_dir=slurm.run_dir, job_name=slurm.job_name, environ=environ)
    where = Whereabouts(
        home=home,
        job_name=job_name(deployment, slurm),
        commands=SlurmCommands(environ, slurm.command_timeout_s),
        environ=environ,
    )
    return Office(deployment=deployment, where=where, allocation=allocation)


@dataclass(slots=True, kw_only=True)
class Office:
    deployment: str
    where: Whereabouts
    allocation: Allocation
    _record: JobRecord = field(init=False)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def home(self) -> Home:
        return self.where.home

    def take_up(self) -> Owner | None:
        """Become the deployment's steward; gives the one before, who is gone, if there was one.

        Raises PD544 where another one lives, in this job or elsewhere.
        """
        self.home.prepare()
        before, own_id = self.home.job(), self.allocation.job_id
        is_ours = before is not None and before.job_id == own_id
        if before is not None and self._is_alive(before, is_ours=is_ours):
            raise self._taken(before)
        self._record = JobRecord(
            job_id=own_id,
            generation=self.allocation.generation,
            state=Tenure.STARTING,
            steward=this_owner("up"),
            # Only a job that pdctl has submitted prints into this file, from its very beginning.
            owns_job=self.home.batch_log(own_id).exists(),
            hosts=tuple(node.name for node in self.allocation.nodes),
        )
        self.home.save_job(self._record)
        self.home.forget_exit()
        self.home.mailbox.put_back()
        return None if before is None else before.steward

    def note(self, state: Tenure, why: str | None = None) -> None:
        self._save(replace(self._record, state=state, why=why))

    def leave(self, end: ExitRecord) -> None:
        """The last thing that a steward does."""
        self.home.save_exit(end)
        self.note(Tenure.ENDED, end.reason)

    @contextmanager
    def beating(self) -> Generator[None]:
        """Show that we live, to whoever can't see this machine's processes."""
        is_over = threading.Event()

        def beat() -> None:
            while not is_over.wait(BEAT_EVERY_S):
                with contextlib.suppress(DiagnosticError):  # a full disk ends nobody who serves
                    self._save(replace(self._record, beat=self._record.beat + 1))

        thread = threading.Thread(target=beat, name="beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def job(self) -> Job | None:
        """As Slurm sees our own job; None where it doesn't answer."""
        try:
            return self.where.commands.job(self.allocation.job_id)
        except SlurmError:
            return None

    def failing_nodes(self) -> tuple[JobNode, ...]:
        """Those of ours that Slurm has given up; none where it doesn't answer."""
        try:
            nodes = self.where.commands.hosts(fold(self._record.hosts))
        except SlurmError:
            return ()
        return tuple(node for node in nodes if not node.is_well)

    def _save(self, record: JobRecord) -> None:
        with self._guard:
            self._record = record
            self.home.save_job(record)

    def _is_alive(self, before: JobRecord, *, is_ours: bool) -> bool:
        if before.state is Tenure.ENDED or before.steward is None or self.where.is_steward_dead(before):
            return False
        if is_ours:  # Slurm has ended an earlier generation before it started this one
            return before.generation == self.allocation.generation
        job = self.where.commands.job(before.job_id)
        return job is not None and not job.fate.is_over

    def _taken(self, before: JobRecord) -> DiagnosticError:
        who = "" if before.steward is None else f", pid {before.steward.pid} on {before.steward.host}"
        return DiagnosticError.one(
            "PD544",
            f"`{self.deployment}` is up already, in job {before.job_id}{who}",
            notes=(f"both would use `{self.home.path}`",),
            help=f"`pdctl down {self.deployment}` ends that one; another `name` makes it another deployment",
        )
