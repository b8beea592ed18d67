"""Slurm as its commands show it, without the traps in them. Each call is one command, or few.

A controller that doesn't answer is `SlurmSilentError`, never an absent job. Output is read by separators and
keys, so that columns of later releases and warnings don't matter; JSON has another form in each release.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pdctl.executors.slurm_job.faults import (
    SlurmRefusedError,
    SlurmSilentError,
    in_short,
    means_silence,
    missing,
    refused,
    silent,
)
from pdctl.executors.slurm_job.job import (
    SEPARATOR,
    Job,
    JobNode,
    Step,
    job_from_accounting,
    jobs_from,
    moment,
    nodes_from,
    rows,
    stated,
)
from pdctl.executors.slurm_job.request import JobRequest
from pdctl.executors.slurm_job.submission import Submission
from pdctl.hostlist import unfold

_JOB_ID = re.compile(r"^(\d+)(;\S+)?$", re.MULTILINE)
_NO_SUCH_JOB = re.compile(r"invalid job id|no such job|already (completing|completed)", re.IGNORECASE)
_ACCOUNTED = "jobid,jobname%100,user,state%40,exitcode,nodelist%2000,start,end"
# What operators set to see other columns, other times, or fewer jobs.
_HABITS = (
    "SQUEUE_",
    "SCANCEL_",
    "SACCT_",
    "SCONTROL_",
    "SINFO_",
    "SLURM_BITSTR_LEN",
    "SLURM_JSON",
    "SLURM_YAML",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    code: int
    stdout: str
    stderr: str


class SlurmCommands:
    """`timeout_s` is for each command; they wait up to 20 s for a controller by themselves."""

    def __init__(self, environ: Mapping[str, str], timeout_s: float) -> None:
        kept = {name: text for name, text in environ.items() if not name.startswith(_HABITS)}
        self._environ = {**kept, "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C.UTF-8"}
        self._timeout_s = timeout_s

    def submit(self, request: JobRequest, script_path: Path) -> int:
        """Submit once, and give the job's id.

        Where it stays open whether a job came of it, the job is looked for: by the request's comment, which
        no other has. `SlurmRefusedError` in Slurm's words; `SlurmSilentError` where nothing was submitted, or
        nobody says for long whether something was.
        """
        return Submission(commands=self, request=request).carry_out(
            lambda: self._submit_once(request, script_path)
        )

    def test_only(self, request: JobRequest, script_path: Path) -> str | None:
        """What Slurm has against the job, None where it would take it."""
        argv = ["sbatch", "--test-only", *request.argv(), str(script_path)]
        said = self._run(argv)
        return None if said.code == 0 else in_short(said.stderr)

    def find(self, job_name: str) -> tuple[Job, ...]:
        """The jobs of that name, of all users, that Slurm remembers; the latest is last."""
        argv = ["squeue", "-h", "-t", "all", "-n", job_name, "-o", f"%A{SEPARATOR}%j{SEPARATOR}%i"]
        found = [row for row in rows(self._ask(argv), 3) if row[1] == job_name]
        # A component of a heterogeneous job is `12+1`: its first one stands for all.
        ids = sorted({int(row[2].partition("+")[0]) for row in found if row[2].partition("+")[0].isdecimal()})
        return tuple(job for job_id in ids if (job := self.job(job_id)) is not None)

    def job(self, job_id: int) -> Job | None:
        """None when Slurm has forgotten it, and there is no accounting that remembers."""
        try:
            text = self._ask(["scontrol", "-o", "show", "job", str(job_id)])
        except SlurmRefusedError as error:
            if _NO_SUCH_JOB.search(error.words) is None:
                raise
            return self._accounted(job_id)
        return next((job for job in jobs_from(text) if job.id == job_id), None)

    def hosts(self, of: int | str) -> tuple[JobNode, ...]:
        """The nodes of a job, or of a folded list, in the order in which Slurm numbers them."""
        nodelist = of
        if isinstance(of, int):
            job = self.job(of)
            nodelist = "" if job is None else job.nodelist or ""
        names = unfold(str(nodelist)) if nodelist else ()
        if not names:
            return ()
        shown = nodes_from(self._ask(["scontrol", "-o", "show", "node", str(nodelist)]))
        by_name = {node.name: node for node in shown}
        return tuple(by_name[name] for name in names if name in by_name)

    def steps(self, job_id: int) -> tuple[Step, ...]:
        """Those that run."""
        argv = ["squeue", "-h", "-s", "-j", str(job_id), "-o", f"%i{SEPARATOR}%j{SEPARATOR}%N"]
        try:
            text = self._ask(argv)
        except SlurmRefusedError as error:
            if _NO_SUCH_JOB.search(error.words) is None:
                raise
            return ()
        return tuple(Step(id=row[0], name=row[1], nodelist=row[2]) for row in rows(text, 3))

    def estimated_start(self, job_id: int) -> float | None:
        """Seconds since 1970; None where Slurm doesn't say."""
        try:
            text = self._ask(["squeue", "-h", "--start", "-j", str(job_id), "-o", f"%A{SEPARATOR}%S"])
        except SlurmRefusedError:
            return None
        return next((moment(stated(row[1])) for row in rows(text, 2)), None)

    def cancel(
        self,
        job_id: int,
        *,
        signal: str | None = None,
        step: str | None = None,
        batch_only: bool = False,
    ) -> None:
        """End a job, or send `signal` to it, to one step of it, or to its batch script alone.

        A job that is over already is no fault. A signal is never sent to an `srun`: it would kill its tasks.
        """
        options = [*(["--batch"] if batch_only else []), *([f"--signal={signal}"] if signal else [])]
        target = str(job_id) if step is None else f"{job_id}.{step}"
        try:
            self._ask(["scancel", *options, target])
        except SlurmRefusedError as error:
            if _NO_SUCH_JOB.search(error.words) is None:
                raise

    def ping(self) -> bool:
        """Whether a controller answers."""
        try:
            return "is UP" in self._run(["scontrol", "ping"]).stdout
        except SlurmSilentError:
            return False

    def _submit_once(self, request: JobRequest, script_path: Path) -> int:
        text = self._ask(["sbatch", "--parsable", *request.argv(), str(script_path)])
        found = _JOB_ID.findall(text)
        if not found:
            raise refused("sbatch", text)
        return int(found[-1][0])

    def _accounted(self, job_id: int) -> Job | None:
        """`sacct` fails where a cluster keeps no accounts; then nobody remembers the job."""
        argv = ["sacct", "-P", "-n", "-X", f"--delimiter={SEPARATOR}", "-j", str(job_id), "-o", _ACCOUNTED]
        try:
            return job_from_accounting(self._ask(argv))
        except SlurmRefusedError:
            return None

    def _ask(self, argv: Sequence[str]) -> str:
        """What the command printed on stdout; warnings on stderr are nobody's business."""
        said = self._run(argv)
        if said.code != 0:
            words = said.stderr or said.stdout
            raise silent(argv[0], words) if means_silence(words) else refused(argv[0], words)
        return said.stdout

    def _run(self, argv: Sequence[str]) -> _Said:
        try:
            done = subprocess.run(
                argv,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._timeout_s,
                check=False,
                start_new_session=True,  # a Ctrl-C is meant for pdctl, which cleans up with these commands
            )
        except FileNotFoundError as error:
            raise missing(argv[0]) from error
        except subprocess.TimeoutExpired as error:
            raise silent(argv[0], f"no end within {self._timeout_s:g} s") from error
        return _Said(
            code=done.returncode,
            stdout=done.stdout.decode(errors="replace"),
            stderr=done.stderr.decode(errors="replace"),
        )
