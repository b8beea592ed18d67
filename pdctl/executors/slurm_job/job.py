"""Jobs, their nodes and steps, as values, and how the words of Slurm's commands become them. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pdctl.executors.slurm_job.states import Fate, fate_of
from pdctl.executors.slurm_job.times import time_s

SEPARATOR = "\x1f"  # between columns: no name, path or comment has it
_NOTHING = frozenset(("", "(null)", "None", "N/A", "NONE", "Unknown", "n/a"))
_NEXT_KEY = re.compile(r" (?=[A-Za-z][A-Za-z0-9_/:&-]*=)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job, heterogeneous ones as a whole. Times are seconds since 1970."""

    id: int
    name: str
    user: str
    state: str  # Slurm's own word
    fate: Fate
    reason: str | None = None  # why it waits, or why it ended
    nodelist: str | None = None  # folded; None: it has no nodes, or not any more
    het_nodelists: tuple[str, ...] = ()  # of its components, where the job is heterogeneous
    num_nodes: int = 0
    started_at: float | None = None
    ends_at: float | None = None  # when it ended, or will at the latest; None: unknown
    limit_s: float | None = None  # None: unlimited
    num_restarts: int = 0
    comment: str | None = None
    exit_code: int | None = None  # of the batch script, once it is over
    exit_signal: int | None = None  # that ended it


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNode:
    name: str
    address: str  # how Slurm reaches it: numbers, or a name that resolves on the cluster
    state: str  # Slurm's own word, such as `ALLOCATED` or `DOWN*+DRAIN`
    reason: str | None = None  # why it is drained or down

    @property
    def is_well(self) -> bool:
        """A node that doesn't respond, or is to be taken away, can't be relied on."""
        marks = set(re.split(r"[^A-Z_]+", self.state.upper()))
        return "*" not in self.state and not marks & {"DOWN", "DRAIN", "FAIL", "FAILING", "ERROR"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A part of a running job: `4711.0`, or `4711.batch`."""

    id: str
    name: str
    nodelist: str


def jobs_from(text: str) -> tuple[Job, ...]:
    """What `scontrol -o show job` printed: a line for each job, or for each component of one."""
    lines = [_pairs(line) for line in text.splitlines() if line.startswith("JobId=")]
    components: dict[int, list[Mapping[str, str]]] = {}
    for line in lines:
        components.setdefault(_integer(line.get("HetJobId")) or _integer(line.get("JobId")) or 0, []).append(
            line
        )
    return tuple(_job(job_id, parts) for job_id, parts in components.items() if job_id)


def job_from_accounting(text: str) -> Job | None:
    """What `sacct -P -n -X` printed: id, name, user, state, exit code, nodes, start, end by `SEPARATOR`."""
    for line in text.splitlines():
        columns = line.split(SEPARATOR)
        if len(columns) < 8 or not columns[0].partition("+")[0].isdigit():
            continue
        code, signal = _exit(columns[4])
        return Job(
            id=int(columns[0].partition("+")[0]),
            name=columns[1],
            user=columns[2],
            state=columns[3],
            fate=fate_of(columns[3]),
            nodelist=None if columns[5].startswith("None") else stated(columns[5]),
            started_at=moment(columns[6]),
            ends_at=moment(columns[7]),
            exit_code=code,
            exit_signal=signal,
        )
    return None


def nodes_from(text: str) -> tuple[JobNode, ...]:
    """What `scontrol -o show node` printed."""
    pairs = [_pairs(line) for line in text.splitlines() if line.startswith("NodeName=")]
    return tuple(
        JobNode(
            name=each["NodeName"],
            address=stated(each.get("NodeAddr")) or each["NodeName"],
            state=each.get("State", ""),
            reason=stated(each.get("Reason")),
        )
        for each in pairs
    )


def rows(text: str, num_columns: int) -> list[Sequence[str]]:
    """Lines with at least so many columns: others are warnings, and more columns are a later release's."""
    split = (line.split(SEPARATOR) for line in text.splitlines())
    return [columns for columns in split if len(columns) >= num_columns]


def moment(text: str | None) -> float | None:
    """`2026-11-30T04:21:22`, in the time of this machine."""
    try:
        return None if stated(text) is None else datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return None


def stated(text: str | None) -> str | None:
    """None for the many words that Slurm has for it."""
    return None if text is None or text.strip() in _NOTHING else text.strip()


def _job(job_id: int, parts: Sequence[Mapping[str, str]]) -> Job:
    first = parts[0]
    state, reason = first.get("JobState", ""), stated(first.get("Reason"))
    num_restarts = _integer(first.get("Restarts")) or 0
    fate = fate_of(state, reason=reason, num_restarts=num_restarts)
    limit_s = time_s(first.get("TimeLimit", ""))
    nodelists = [each for part in parts if (each := stated(part.get("NodeList"))) is not None]
    code, signal = _exit(first.get("ExitCode", ""))
    return Job(
        id=job_id,
        name=first.get("JobName", ""),
        user=first.get("UserId", "").partition("(")[0],
        state=state,
        fate=fate,
        reason=reason,
        nodelist=",".join(nodelists) or None,
        het_nodelists=tuple(nodelists) if "HetJobId" in first else (),
        num_nodes=sum(_integer(part.get("NumNodes", "").partition("-")[0]) or 0 for part in parts),
        started_at=moment(first.get("StartTime")),
        ends_at=moment(first.get("EndTime")),
        limit_s=None if limit_s == math.inf else limit_s,
        num_restarts=num_restarts,
        comment=stated(first.get("Comment")),
        exit_code=code if fate.is_over else None,
        exit_signal=signal if fate.is_over else None,
    )


def _pairs(line: str) -> dict[str, str]:
    """`Key=value Key=some words`. The first of a key counts: people write what they like into comments."""
    found: dict[str, str] = {}
    for word in _NEXT_KEY.split(line):
        key, _, value = word.partition("=")
        found.setdefault(key, value)
    return found


def _exit(text: str) -> tuple[int | None, int | None]:
    """`4:0` is exit code 4, `0:15` an end by signal 15."""
    code, _, signal = text.partition(":")
    if _integer(signal):
        return None, _integer(signal)
    return _integer(code), None


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
