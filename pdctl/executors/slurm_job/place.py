"""Where a deployment's job stands: which nodes it holds, and whether we are on one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pdctl.executors.slurm_job.commands import SlurmCommands
from pdctl.executors.slurm_job.faults import SlurmSilentError
from pdctl.executors.slurm_job.home import Home, JobRecord
from pdctl.executors.slurm_job.states import Fate
from pdctl.executors.slurm_job.whereabouts import how_it_ended
from pdctl.hostlist import unfold

MAX_HET_GROUPS = 128  # Slurm's own limit


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldNode:
    name: str
    het_group: int | None = None  # the component that has it, where the job is heterogeneous


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Nodes that a job holds. `generation` counts how often Slurm has started it again."""

    job_id: int
    generation: int
    nodes: tuple[HeldNode, ...]
    own_node: str | None = None  # where we run ourselves
    silence: str | None = None  # why Slurm can't be asked whether the job still has them

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastJob:
    """A job whose nodes are gone, or going; what it left lies in the shared folder."""

    job_id: int
    generation: int
    why: str  # a sentence: which job ended, when, and how
    is_over: bool = True  # False: Slurm is about to end what still runs


Place = Allocation | PastJob | None  # None: no job, or none that has its nodes yet


def place_of(home: Home, commands: SlurmCommands, environ: Mapping[str, str]) -> Place:
    """By the record in the shared folder; the allocation that we are in where that has no living job."""
    record, inside = home.job(), own_allocation(environ)
    if record is None or (inside is not None and record.job_id == inside.job_id):
        return inside
    found = _recorded_place(home, record, commands)
    return found if inside is None or isinstance(found, Allocation) else inside


def is_still(known: Allocation, record: JobRecord | None) -> bool:
    """Whether the record still tells of these nodes of this job."""
    return record is not None and (known.job_id, known.generation, known.names) == (
        record.job_id,
        record.generation,
        record.hosts,
    )


def own_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """The job that this process is a part of, or whose allocation its shell holds. Slurm isn't asked."""
    job_id = _number(environ.get("SLURM_JOB_ID"))
    if job_id is None:
        return None
    return Allocation(
        job_id=job_id,
        generation=_number(environ.get("SLURM_RESTART_COUNT")) or 0,
        nodes=tuple(_own_nodes(environ)),
        own_node=environ.get("SLURMD_NODENAME"),
    )


def _own_nodes(environ: Mapping[str, str]) -> list[HeldNode]:
    num_groups = min(_number(environ.get("SLURM_HET_SIZE")) or 0, MAX_HET_GROUPS)
    if num_groups == 0:
        return [HeldNode(name=name) for name in _unfolded(environ.get("SLURM_JOB_NODELIST"))]
    return [
        HeldNode(name=name, het_group=group)
        for group in range(num_groups)
        for name in _unfolded(environ.get(f"SLURM_JOB_NODELIST_HET_GROUP_{group}"))
    ]


def _recorded_place(home: Home, record: JobRecord, commands: SlurmCommands) -> Place:
    known = Allocation(
        job_id=record.job_id,
        generation=record.generation,
        nodes=tuple(HeldNode(name=name) for name in record.hosts),
    )
    try:
        job = commands.job(record.job_id)
    except SlurmSilentError as error:
        return replace(known, silence=error.diagnostics[0].message)
    if job is None or job.fate.is_over:
        why = how_it_ended(record, job, home.exit())
        return PastJob(job_id=record.job_id, generation=record.generation, why=why)
    if job.fate is Fate.ENDING:
        why = f"job {record.job_id} is ending"
        return PastJob(job_id=record.job_id, generation=record.generation, why=why, is_over=False)
    if job.fate.waits or not record.hosts:
        return None
    groups = {name: group for group, names in enumerate(job.het_nodelists) for name in _unfolded(names)}
    return replace(
        known, nodes=tuple(HeldNode(name=name, het_group=groups.get(name)) for name in record.hosts)
    )


def _unfolded(nodelist: str | None) -> tuple[str, ...]:
    return unfold(nodelist) if nodelist else ()


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
