"""What runs on the nodes right now, as values. Nodes are the truth; nothing here is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pdctl.diagnostics import Diagnostic


class Phase(StrEnum):
    """Where a process stands. A node knows only that it runs (`STARTING`); probes tell `READY`, `UNREADY`."""

    STARTING = "starting"  # runs, has not been seen ready
    READY = "ready"
    UNREADY = "unready"  # runs, was ready, its probe fails now
    EXITED = "exited"  # ended as it should: code 0, or stopped on request
    FAILED = "failed"  # ended by itself with another code, by a signal, or could not be executed
    LOST = "lost"  # ended without a record: its host rebooted, or it died together with its shim
    UNKNOWN = "unknown"  # its node can't be reached, which is not the same as stopped

    @property
    def is_alive(self) -> bool:
        return self in (Phase.STARTING, Phase.READY, Phase.UNREADY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedProcess:
    """The latest run of one process, and whatever of an earlier run is still alive."""

    id: str
    node: str
    phase: Phase
    digest: str | None = None  # None: its run directory can't be read any more
    run_id: str | None = None
    pid: int | None = None
    age_s: float | None = None  # since it was started, whatever clocks say; None unless it runs
    ended_at: float | None = None  # seconds since the epoch, by the node's clock
    exit_code: int | None = None
    signal: int | None = None  # that ended it
    reason: str | None = None  # in a few words, when there is more to say than the phase
    rss_bytes: int | None = None  # of the whole process tree
    device_bytes: int | None = None  # of accelerators, of the whole tree; None: not asked, or not told
    num_alive: int = 0  # OS processes of it that live; more than zero after its end means leftovers
    is_supervised: bool = True  # False: its shim is gone, so its exit code will never be known
    grace_s: float = 10.0  # between TERM and KILL
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreachableNode:
    """Unreachable is not stopped: what runs there is unknown."""

    name: str
    reason: str
    since_s: float = 0.0  # as far as this run of pdctl knows
    code: str = "PD503"  # of a diagnostic about it
    notes: tuple[str, ...] = ()  # what this node has of its own, where others share the reason
    help: str | None = None
    commands: tuple[str, ...] = ()  # of its own, below the help
    fault: Diagnostic | None = None  # the whole story, where there is more to tell than a lost connection


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedState:
    """Everything of one deployment that was found, by process id."""

    deployment: str
    processes: tuple[ObservedProcess, ...] = ()
    unreachable: tuple[UnreachableNode, ...] = ()

    def process(self, process_id: str) -> ObservedProcess | None:
        return next((each for each in self.processes if each.id == process_id), None)
