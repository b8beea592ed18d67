"""The protocols between pdctl and a cluster.

An executor reports what a user can fix as `DiagnosticError` (PD5xx). A node that can't be reached is a
value where others may still answer (`ObservedState.unreachable`, `StopOutcome.error`), PD503 where it alone
was asked. Every method may be called from several threads at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from pdctl.executors.calls import (
    CommandOutput,
    LogLine,
    LogQuery,
    NodeCommand,
    PortAnswer,
    PortQuery,
    ProbeAnswer,
    ProbeRequest,
    StartOutcome,
    StopOutcome,
)
from pdctl.inventory import Inventory
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.state.lock import LockOutcome, Owner
from pdctl.state.observed import ObservedProcess, ObservedState
from pdctl.topology.model import Cluster


class LogStream(Protocol):
    """Lines of several processes, merged as they come; a context manager, `close` ends the stream at once."""

    def __iter__(self) -> Iterator[LogLine]: ...

    def close(self) -> None: ...


class CommandStream(Protocol):
    """Output of one command; `close` kills the command if it still runs."""

    def __iter__(self) -> Iterator[CommandOutput]: ...

    def close(self) -> None: ...


class Supervision(Protocol):
    """Processes of deployments: see, start, stop."""

    def deployments(self) -> tuple[str, ...]:
        """Names of all deployments that have run directories on the nodes."""
        ...

    def observe(self, deployment: str) -> ObservedState: ...

    def start(self, plan: LaunchPlan, process: ProcessSpec) -> StartOutcome:
        """Start one process unless a run of it is alive. Returns when its program has begun or could not."""
        ...

    def stop(
        self, deployment: str, processes: Sequence[ObservedProcess], *, grace_s: float | None = None
    ) -> tuple[StopOutcome, ...]:
        """Stop all at once, with each one's own grace unless told; returns when all are verified gone."""
        ...

    def forget(self, deployment: str) -> tuple[str, ...]:
        """Remove run directories and logs of ended processes; return the ids of those that still live."""
        ...


class PlanKeeping(Protocol):
    """The plan in force lies on the nodes, so that losing an operator's record loses nothing."""

    def keep_plan(self, deployment: str, content: bytes) -> None:
        """Keep the plan that is about to be applied; `forget` removes it with the last process."""
        ...

    def kept_plan(self, deployment: str) -> bytes | None: ...


class NodeAccess(Protocol):
    """Questions that only the nodes themselves can answer."""

    def probe(self, requests: Sequence[ProbeRequest]) -> tuple[ProbeAnswer, ...]:
        """Answers in the order of the requests; nodes are asked at the same time."""
        ...

    def ports(self, queries: Sequence[PortQuery]) -> tuple[PortAnswer, ...]:
        """Answers in the order of the queries."""
        ...

    def logs(self, query: LogQuery) -> LogStream: ...

    def run(self, command: NodeCommand) -> CommandStream: ...


class DeploymentLock(Protocol):
    """One operator at a time, across machines."""

    def lock(self, deployment: str, owner: Owner) -> LockOutcome:
        """Take the lock, also from an owner who is provably dead."""
        ...

    def unlock(self, deployment: str, owner: Owner) -> None:
        """Give it back; no fault when it is not held any more."""
        ...

    def holder(self, deployment: str) -> Owner | None: ...


class Executor(Supervision, PlanKeeping, NodeAccess, DeploymentLock, Protocol):
    """A cluster. One file per kind; `create(cluster, environ)` in that file makes it."""

    def acquire(self, cluster: Cluster) -> Inventory:
        """The nodes there are, allocated if the cluster must be asked for them."""
        ...
