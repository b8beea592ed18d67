"""The folder that the operator, the steward in the job and the nodes share: what lies where, and two records.

    topology.json                   the frozen document that the job serves
    job.json                        which job it is, and how its steward fares
    exit.json                       how the deployment's part of the job ended: Slurm soon forgets jobs
    records/                        lock, plan in force and history of the deployment
    run/<job>.<generation>/         run directories of processes; a requeued job never touches older ones
    requests/, events/              the mailbox
    steps/, batch-<job>.log, steward.log    what Slurm and the steward printed

Any machine may read while another one writes, over a file system that shows changes late: files are replaced
as a whole, and who waits for one looks again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from pdctl.executors.slurm_job.mailbox import Mailbox
from pdctl.fields import FieldError, Fields, parse_fields
from pdctl.state.files import cannot, read_file, replace_file
from pdctl.state.lock import Owner, owner_from_fields
from pdctl.state.paths import state_dir
from pdctl.topology.slurm import Slurm


class Tenure(StrEnum):
    """How far the steward of a job has come."""

    SUBMITTED = "submitted"  # the job may still wait for its nodes
    STARTING = "starting"
    SERVING = "serving"
    DEGRADED = "degraded"  # something of it is gone, and the rest serves
    IDLE = "idle"  # it can't serve, and stays to be changed
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    job_id: int
    generation: int = 0  # how often Slurm has put the job back into the queue
    state: Tenure = Tenure.SUBMITTED
    why: str | None = None  # of a state that is no success
    steward: Owner | None = None
    beat: int = 0  # grows while the steward lives; clocks of machines differ
    owns_job: bool = True  # False: the job is the user's own, and goes on without the deployment
    hosts: tuple[str, ...] = ()  # the nodes of the job, once it has some

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """Written by the steward; where it was killed, there is none."""

    job_id: int
    generation: int
    cause: str  # one word: `down`, `timeout`, `preempted`, `cancelled`, `failed`
    reason: str  # as the end of a sentence whose subject is the deployment
    at: float  # seconds since the epoch
    code: int
    processes: Mapping[str, int | None] = field(default_factory=dict[str, int | None])  # exit codes by id

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Paths and records below one folder. Files that can't be read or written are PD506."""

    path: Path

    @property
    def topology(self) -> Path:
        return self.path / "topology.json"

    @property
    def records(self) -> Path:
        """Root of a shim that runs no processes: it keeps lock, plan and history."""
        return self.path / "records"

    @property
    def steps(self) -> Path:
        return self.path / "steps"

    @property
    def steward_log(self) -> Path:
        return self.path / "steward.log"

    @property
    def batch_script(self) -> Path:
        return self.path / "batch.sh"

    def batch_log(self, job_id: int | str) -> Path:
        """`%j` stands for the job's number where Slurm fills it in."""
        return self.path / f"batch-{job_id}.log"

    def run_root(self, job_id: int, generation: int) -> Path:
        return self.path / "run" / f"{job_id}.{generation}"

    @property
    def mailbox(self) -> Mailbox:
        return Mailbox(requests=self.path / "requests", events=self.path / "events")

    def prepare(self) -> None:
        """Make the folders that others expect."""
        for folder in (self.path, self.steps, self.mailbox.requests, self.mailbox.events):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise cannot("make", folder, error) from error

    def exists(self) -> bool:
        return self.path.is_dir()

    def job(self) -> JobRecord | None:
        """None as well where the file is damaged: Slurm is asked by the job's name then."""
        found = self._read("job.json")
        try:
            return None if found is None else _job_from(found)
        except (FieldError, ValueError):
            return None

    def save_job(self, record: JobRecord) -> None:
        self._write("job.json", record.to_json())

    def begin_job(self, record: JobRecord) -> None:
        """As `save_job`, unless there is a record: a steward may have been faster than who submitted it."""
        draft = self.path / f".job.json.{record.job_id}"
        replace_file(draft, json.dumps(record.to_json(), indent=1).encode())
        try:
            (self.path / "job.json").hardlink_to(draft)
        except FileExistsError:
            pass
        except OSError as error:
            raise cannot("write", self.path / "job.json", error) from error
        finally:
            draft.unlink(missing_ok=True)

    def forget_job(self) -> None:
        (self.path / "job.json").unlink(missing_ok=True)

    def exit(self) -> ExitRecord | None:
        found = self._read("exit.json")
        try:
            return None if found is None else _exit_from(found)
        except FieldError:
            return None

    def save_exit(self, record: ExitRecord) -> None:
        self._write("exit.json", record.to_json())

    def forget_exit(self) -> None:
        (self.path / "exit.json").unlink(missing_ok=True)

    def remove(self) -> None:
        """All of it; no fault when there is none. Only once nothing of the job runs."""
        try:
            shutil.rmtree(self.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise cannot("remove", self.path, error) from error

    def _read(self, name: str) -> Fields | None:
        content = read_file(self.path / name)
        try:
            return None if content is None else parse_fields(name, content)
        except FieldError:
            return None

    def _write(self, name: str, value: Mapping[str, object]) -> None:
        replace_file(self.path / name, json.dumps(value, indent=1).encode())


def home_of(
    deployment: str, *, run_dir: str | None, job_name: str | None, environ: Mapping[str, str]
) -> Home:
    """Where a deployment lives: by default in the operator's own state directory, which sites share."""
    base = Path(run_dir).expanduser() if run_dir is not None else state_dir(environ) / "slurm"
    return Home(path=base.absolute() / (job_name or default_job_name(deployment)))


def placed(slurm: Slurm | None, deployment: str, environ: Mapping[str, str]) -> Slurm:
    """With the place of its home stated, so that it is the same one on every machine."""
    slurm = slurm or Slurm()
    home = home_of(deployment, run_dir=slurm.run_dir, job_name=slurm.job_name, environ=environ)
    return replace(slurm, run_dir=str(home.path.parent), job_name=home.path.name)


def default_job_name(deployment: str) -> str:
    return f"pdctl-{deployment}"


def _job_from(fields: Fields) -> JobRecord:
    steward = fields.optional_object("steward")
    return JobRecord(
        job_id=fields.integer("job_id"),
        generation=fields.integer("generation"),
        state=Tenure(fields.text("state")),
        why=fields.optional_text("why"),
        steward=None if steward is None else owner_from_fields(steward),
        beat=fields.integer("beat"),
        owns_job=fields.flag("owns_job"),
        hosts=fields.texts("hosts"),
    )


def _exit_from(fields: Fields) -> ExitRecord:
    codes = fields.object("processes")
    return ExitRecord(
        job_id=fields.integer("job_id"),
        generation=fields.integer("generation"),
        cause=fields.text("cause"),
        reason=fields.text("reason"),
        at=fields.number("at"),
        code=fields.integer("code"),
        processes={each: codes.optional_integer(each) for each in codes.values},
    )
