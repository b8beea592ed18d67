"""The protocols between pdctl and a cluster.

An executor reports what a user can fix as `DiagnosticError` (PD5xx). A node that can't be reached is a
value where others may still answer (`ObservedState.unreachable`, `StopOutcome.error`), PD503 where it alone
was asked. Every method may be called from several threads at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from pdctl.executors.calls import (
    CommandOutput,
    ForgetOutcome,
    LogLine,
    LogNotice,
    LogQuery,
    LookQuery,
    NodeCommand,
    NodeQuestion,
    NodeReply,
    PortAnswer,
    PortQuery,
    ProbeAnswer,
    ProbeRequest,
    Remains,
    Sight,
    Standing,
    StartOutcome,
    StopOutcome,
)
from pdctl.executors.deputy import Deputy
from pdctl.inventory import Inventory
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.state.audit import AuditEntry
from pdctl.state.lock import LockOutcome, Owner
from pdctl.state.observed import ObservedProcess, ObservedState
from pdctl.state.pending import PendingNode
from pdctl.topology.model import Cluster


class LogStream(Protocol):
    """Lines of several processes, merged as they come; `close` ends the stream at once, from any thread.

    A node that is lost does not end it. While following it is a notice, and so is its return; otherwise it
    is PD503 at the end.
    """

    def __iter__(self) -> Iterator[LogLine | LogNotice]: ...

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

    def look(self, query: LookQuery) -> Sight:
        """Observe, probe and read the last lines of output, in one round trip per node."""
        ...

    def start(self, plan: LaunchPlan, processes: Sequence[ProcessSpec]) -> tuple[StartOutcome, ...]:
        """Start each process unless a run of it is alive: one call per node, nodes at the same time.

        Returns when each one's program has begun or could not, in the order of `processes`.
        """
        ...

    def stop(
        self, deployment: str, processes: Sequence[ObservedProcess], *, grace_s: float | None = None
    ) -> tuple[StopOutcome, ...]:
        """Stop all at once, with each one's own grace unless told; returns when all are verified gone."""
        ...

    def prove(
        self, deployment: str, queries: Sequence[PortQuery], pids: Mapping[str, Sequence[int]]
    ) -> tuple[Remains, ...]:
        """Look afresh, on each machine, for what is left of a deployment: living processes, these ports, and
        device memory of these pids, which it had on the node that they stand under.
        """
        ...

    def forget(self, deployment: str, *, keeps_plan: bool = False) -> ForgetOutcome:
        """Remove run directories and logs of ended processes, on all nodes that can be reached.

        With the last process of a node go plan and history there, unless they are still needed.
        """
        ...

    def tidy(self) -> None:
        """After an act that started nothing: take away what it has put on nodes that need it for nothing."""
        ...


class PlanKeeping(Protocol):
    """The plan in force, and its history, lie on nodes: losing an operator's record loses nothing."""

    def keep_plan(self, deployment: str, content: bytes, *, pending: Sequence[PendingNode] = ()) -> None:
        """Keep the plan that is about to be applied, or whose end is not finished on `pending`."""
        ...

    def kept_plan(self, deployment: str) -> bytes | None: ...

    def note(self, deployment: str, entry: AuditEntry) -> None:
        """Append to the deployment's history."""
        ...

    def history(self, deployment: str) -> tuple[AuditEntry, ...]:
        """Oldest first; gone with the deployment."""
        ...


class NodeAccess(Protocol):
    """Questions that only the nodes themselves can answer."""

    def probe(self, requests: Sequence[ProbeRequest]) -> tuple[ProbeAnswer, ...]:
        """Answers in the order of the requests; nodes are asked at the same time."""
        ...

    def ports(self, queries: Sequence[PortQuery]) -> tuple[PortAnswer, ...]:
        """Answers in the order of the queries."""
        ...

    def ask(self, verb: str, questions: Sequence[NodeQuestion]) -> tuple[NodeReply, ...]:
        """Put a verb of the shim that only looks to nodes, one call for each machine, all at the same time.

        A node that can't be reached or can't answer is a reply with faults, in the order of the questions.
        """
        ...

    def logs(self, query: LogQuery) -> LogStream: ...

    def run(self, command: NodeCommand) -> CommandStream: ...


class DeploymentLock(Protocol):
    """One operator at a time, across machines."""

    def lock(self, deployment: str, owner: Owner, *, anywhere: bool = False) -> LockOutcome:
        """Take the lock, also from an owner who is provably dead. It lies on the first node.

        With `anywhere`, on the next one that answers: ending a deployment must not need its first node.
        """
        ...

    def unlock(self, deployment: str, owner: Owner) -> None:
        """Give it back; no fault when it is not held any more."""
        ...

    def holder(self, deployment: str) -> Owner | None:
        """Who holds it, unless provably dead."""
        ...

    def standing(self, deployment: str) -> Standing:
        """Who holds it, dead or not, and what an earlier `down` could not reach."""
        ...


class Executor(Supervision, PlanKeeping, NodeAccess, DeploymentLock, Protocol):
    """A cluster. One file per kind; `create(cluster, environ)` in that file makes it."""

    def acquire(self, cluster: Cluster) -> Inventory:
        """The nodes there are, allocated if the cluster must be asked for them."""
        ...

    def deputy(self, deployment: str) -> Deputy | None:
        """Who works in the operator's place; None where pdctl itself works from the operator's machine."""
        ...
