"""The deputy of a Slurm deployment: a steward in a job, reached through the folder that both share."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from pdctl.clock import Clock, SystemClock
from pdctl.events import EventSink, Submitted
from pdctl.executors.deputy import Attendance, Request
from pdctl.executors.slurm_job.bad_nodes import bad_nodes_of
from pdctl.executors.slurm_job.batch_script import batch_script
from pdctl.executors.slurm_job.commands import SlurmCommands
from pdctl.executors.slurm_job.faults import SlurmRefusedError, SlurmSilentError
from pdctl.executors.slurm_job.home import Home, JobRecord, home_of
from pdctl.executors.slurm_job.refusals import refusal
from pdctl.executors.slurm_job.request import job_name, job_request
from pdctl.executors.slurm_job.waiting import Waiting
from pdctl.executors.slurm_job.whereabouts import Whereabouts
from pdctl.fields import Fields
from pdctl.state.files import replace_file
from pdctl.state.lock import Owner
from pdctl.topology.model import Topology
from pdctl.topology.slurm import Slurm

END_PATIENCE_S = 90.0  # Slurm's own KillWait, epilogs, a controller that is slow
LOOK_EVERY_S = 0.5
WITHDRAW_PATIENCE_S = 60.0


def deputy_of(slurm: Slurm, deployment: str, environ: Mapping[str, str]) -> SlurmDeputy:
    home = home_of(deployment, run_dir=slurm.run_dir, job_name=slurm.job_name, environ=environ)
    where = Whereabouts(
        home=home,
        job_name=job_name(deployment, slurm),
        commands=SlurmCommands(environ, slurm.command_timeout_s),
        environ=environ,
    )
    return SlurmDeputy(deployment=deployment, slurm=slurm, where=where, clock=SystemClock())


@dataclass(slots=True, kw_only=True)
class SlurmDeputy:
    """See `Deputy`. Inside an allocation a steward is started there; elsewhere a job is submitted for one."""

    deployment: str
    slurm: Slurm
    where: Whereabouts
    clock: Clock
    _engaged: Request | None = None  # whose deputy has not been seen yet
    _child: subprocess.Popen[bytes] | None = None  # the steward, where it was started from here

    @property
    def home(self) -> Home:
        return self.where.home

    def attendance(self) -> Attendance:
        return self.where.attendance()

    def engage(self, topology: Topology, request: Request, sink: EventSink) -> None:
        assert request.document is not None, "a job carries the topology that it serves"
        self._engaged = request
        if self.attendance() is not Attendance.GONE:  # else processes still write there
            self._clean()
        self.home.prepare()
        replace_file(self.home.topology, request.document.encode())
        self.home.mailbox.post(request)
        if self.where.own_job_id is not None:
            self._start_here(self.where.own_job_id)
            return
        bad_nodes = bad_nodes_of(self.slurm, self.where.environ).names(self.clock.wall())
        job_id = self._submit(topology, request, bad_nodes)
        self.home.begin_job(JobRecord(job_id=job_id))
        sink.on(Submitted(job_id=job_id, without=bad_nodes))

    def hand_over(self, request: Request) -> None:
        self.home.mailbox.post(request)

    def await_outcome(self, request: Request, sink: EventSink) -> Fields:
        waiting = Waiting(
            request=request,
            where=self.where,
            reading=self.home.mailbox.reading(request.token),
            clock=self.clock,
            sink=sink,
            is_allocated=self._engaged is not request,
            child=self._child,
        )
        return waiting.until_done()

    def withdraw(self, request: Request) -> bool:
        was_waiting = self.home.mailbox.withdraw(request.token)
        if self._engaged is not request or not was_waiting:
            return was_waiting
        self._cancel_submission(request)
        return True

    def dismiss(self, *, grace_s: float, is_ending: bool) -> tuple[str, ...]:
        """Wait for the batch part to end, or tell it to; then have Slurm end what is left of the job."""
        job, record = self.where.job(), self.home.job()
        if job is None:
            return ()
        if record is not None and record.job_id == job.id and not record.owns_job:
            return self._dismiss_steward(record, grace_s, is_ending=is_ending)
        if is_ending and self._is_over_within(job.id, grace_s):
            return ()
        if not job.fate.waits and not is_ending:
            self.where.commands.cancel(job.id, signal="TERM", batch_only=True)
            if self._is_over_within(job.id, grace_s):
                return ()
        self.where.commands.cancel(job.id)
        if self._is_over_within(job.id, END_PATIENCE_S):
            return ()
        return (f"job {job.id} is not over",)

    def is_over(self, owner: Owner) -> bool:
        return self.where.is_over(owner)

    def remarks(self) -> tuple[str, ...]:
        return self.where.remarks()

    def last_words(self) -> str | None:
        return self.where.last_words()

    def clear(self) -> None:
        self.home.remove()

    def _clean(self) -> None:
        """What an earlier job has left, except the deployment's history."""
        self.home.forget_job()
        self.home.forget_exit()
        for folder in ("run", "requests", "events", "steps"):
            shutil.rmtree(self.home.path / folder, ignore_errors=True)

    def _submit(self, topology: Topology, request: Request, bad_nodes: tuple[str, ...]) -> int:
        asked = job_request(
            topology,
            token=request.token,
            output=str(self.home.batch_log("%j")),
            bad_nodes=bad_nodes,
        )
        script = batch_script(
            self.deployment,
            asked.directives(),
            python=self.slurm.pdctl_python or sys.executable,
            home=self.home,
            environ=self.where.environ,
        )
        replace_file(self.home.batch_script, script.encode())
        try:
            return self.where.commands.submit(asked, self.home.batch_script)
        except SlurmRefusedError as error:
            self.home.remove()
            raise refusal(error, topology) from error

    def _start_here(self, job_id: int) -> None:
        """In a session of its own: the steward outlives this pdctl, and ends with the job."""
        self.home.save_job(JobRecord(job_id=job_id, owns_job=False))
        argv = [sys.executable, "-m", "pdctl", "up", str(self.home.topology), "--foreground"]
        with self.home.steward_log.open("ab") as log:
            self._child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.where.environ),
                start_new_session=True,
                cwd=self.home.path,
            )

    def _cancel_submission(self, request: Request) -> None:
        """No job may be left of it, also where Ctrl-C came while it was being submitted."""
        gives_up_at = self.clock.now() + WITHDRAW_PATIENCE_S
        while True:
            try:
                for job in self.where.commands.find(self.where.job_name):
                    if job.comment == request.token and not job.fate.is_over:
                        self.where.commands.cancel(job.id)
                self.home.remove()
            except SlurmSilentError:
                if self.clock.now() > gives_up_at:
                    raise
                self.clock.sleep(LOOK_EVERY_S)
            else:
                return

    def _is_over_within(self, job_id: int, patience_s: float) -> bool:
        gives_up_at = self.clock.now() + patience_s
        while True:
            job = self.where.commands.job(job_id)
            if job is None or job.fate.is_over:
                return True
            if self.clock.now() > gives_up_at:
                return False
            self.clock.sleep(LOOK_EVERY_S)

    def _dismiss_steward(self, record: JobRecord, grace_s: float, *, is_ending: bool) -> tuple[str, ...]:
        """The job is the user's: only the steward is asked to end, and its processes with it."""
        steward = record.steward
        if steward is None or self.where.is_steward_dead(record):
            return ()
        if steward.host != socket.gethostname():
            return (f"pid {steward.pid} on {steward.host} still works on it",)
        if not is_ending:
            os.kill(steward.pid, signal.SIGTERM)
        gives_up_at = self.clock.now() + grace_s
        while not self.where.is_steward_dead(record):
            if self.clock.now() > gives_up_at:
                return (f"pid {steward.pid} still works on it",)
            self.clock.sleep(LOOK_EVERY_S)
        return ()
