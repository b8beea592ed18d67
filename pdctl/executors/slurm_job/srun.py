"""Steps of a job: the command line of `srun`, its environment, and what its words mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pdctl.executors.shell import UnreachableError
from pdctl.executors.slurm_job.faults import means_silence

SILENT_CODE, MISSING_CODE, GONE_CODE, STEP_CODE = "PD533", "PD534", "PD538", "PD539"
MAX_QUOTED_LINES = 5


class JobGoneError(UnreachableError):
    """The job has ended, or Slurm knows it no more: asking again is of no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlace:
    """One node of one job, and what a site wants of every step there."""

    job_id: int
    node: str
    het_group: int | None = None  # the component that has the node, where the job is heterogeneous
    srun_args: tuple[str, ...] = ()  # `--key=value`
    environ: Mapping[str, str]  # of whoever starts steps

    def with_options(self, options: Sequence[str]) -> StepPlace:
        return replace(self, srun_args=(*self.srun_args, *options))


# One task, beside whatever else runs on its node, with all that the job has there. `--overlap`: a step that
# asks for devices of its own would wait until others end. `--mem=0` is the job's memory. Without
# `--cpu-bind=none`, some sites give a single task a single core. `--mpi=none`: an engine starts as one task,
# and must not take that for its world. `/` exists on every node.
STEP_OPTIONS = (
    "--nodes=1",
    "--ntasks=1",
    "--overlap",
    "--mem=0",
    "--cpu-bind=none",
    "--mpi=none",
    "--chdir=/",
)


def step_argv(place: StepPlace, name: str, command: Sequence[str]) -> list[str]:
    """A step of one task on the node."""
    return [
        "srun",
        f"--jobid={place.job_id}",
        *([] if place.het_group is None else [f"--het-group={place.het_group}"]),
        f"--nodelist={place.node}",
        *STEP_OPTIONS,
        f"--job-name={name}",
        *place.srun_args,
        *command,
    ]


def step_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Without what Slurm gave to the script or shell that we run in: `srun` would take it for options."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith("SLURM_CONF") or not name.startswith(("SLURM_", "SLURMD_", "SRUN_", "PMI_"))
    }


# What `srun` says of a job that is over, in releases from 20.11 to 25.05.
_GONE = (
    "Invalid job id",
    "Expired or invalid job",
    "Job/step already completing or completed",
    "has expired",
    "job is not running",
    "Job has been revoked",
    "Job is in the wrong state",
)


_ON_NODE = "failed on node"  # it is the node's slurmd that doesn't answer


def step_fault(said: str, *, job_id: int, has_begun: bool = False) -> UnreachableError:
    """Why a step did not start, or ended before its time, by what `srun` said."""
    lines = sorted(filter(_is_fault, said.splitlines()), key=_says_little)[:MAX_QUOTED_LINES]
    reason = _words(lines[0]) if lines else "`srun` ended without a word"
    if means_silence(reason) and _ON_NODE not in reason:
        return UnreachableError(
            "Slurm's controller doesn't answer",
            code=SILENT_CODE,
            notes=(f"`srun` said: {reason}",),
            help="try again later; `scontrol ping` tells whether it is back",
        )
    if any(fragment in said for fragment in _GONE):
        return JobGoneError(f"job {job_id} has ended", code=GONE_CODE, notes=(f"`srun` said: {reason}",))
    return UnreachableError(
        f"a step of job {job_id} {'ended' if has_begun else 'did not start'}: {reason}",
        code=STEP_CODE,
        notes=tuple(map(_words, lines[1:])),
        help="`scontrol show node` tells how the node fares, `scontrol show job` what the job has of it",
    )


def no_srun() -> UnreachableError:
    return UnreachableError(
        "this machine has no `srun`",
        code=MISSING_CODE,
        help="work on a machine where Slurm's commands are installed, such as a login node",
    )


def too_slow(job_id: int, limit_s: float, said: str) -> UnreachableError:
    """A step that did not start within its time."""
    lines = [_words(line) for line in said.splitlines() if line.startswith("srun:")]
    return UnreachableError(
        f"a step of job {job_id} did not start within {limit_s:g} s",
        code=STEP_CODE,
        notes=tuple(lines[-MAX_QUOTED_LINES:]),
        help="`scontrol show node` tells how the node fares",
    )


def _is_fault(line: str) -> bool:
    return "error: " in line or "fatal: " in line


def _says_little(line: str) -> bool:
    """What follows from another line, although it may come first."""
    return "Exited with exit code" in line or "CANCELLED AT" in line


def _words(line: str) -> str:
    return line.partition("error: ")[2] or line.removeprefix("srun: ").strip()
