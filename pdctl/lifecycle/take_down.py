"""Stop all of a deployment and prove that it is gone, from wherever this pdctl reaches the nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pdctl.apply.stop import stop_processes
from pdctl.clock import SystemClock
from pdctl.events import EventSink
from pdctl.executors.calls import PortQuery, Remains, StopOutcome
from pdctl.hostlist import fold
from pdctl.lifecycle.access import Deployment, records
from pdctl.lifecycle.audit import audited, bring_home
from pdctl.lifecycle.interrupt import interruptible
from pdctl.lifecycle.locking import locked, settled
from pdctl.plan.codec import plan_to_json
from pdctl.plan.model import LaunchPlan
from pdctl.reconcile.reconcile import stop_everything
from pdctl.state.observed import ObservedState
from pdctl.state.pending import PendingNode


@dataclass(frozen=True, slots=True, kw_only=True)
class DownOutcome:
    """Nothing is left when `leftovers` and `pending` are empty."""

    stopped: tuple[str, ...]
    leftovers: tuple[str, ...]  # what still is there
    pending: tuple[PendingNode, ...]  # nodes that could not be reached; the next `down` goes on with them
    unproven: tuple[str, ...]  # what could not be looked at on nodes that could
    elapsed_s: float

    @property
    def is_complete(self) -> bool:
        return not (self.leftovers or self.pending)


def take_down(deployment: Deployment, sink: EventSink, *, keeps_history: bool = False) -> DownOutcome:
    """Stop every process, its descendants too, and remove the run directories.

    With `keeps_history`, plan and history stay on the nodes, for whoever asked for this from elsewhere.
    """
    clock = SystemClock()
    began = clock.now()
    name, executor = deployment.name, deployment.executor
    with (
        interruptible(name, executor),
        locked(name, "down", executor, sink, is_ending=True) as lock,
        audited(name, "down", executor) as notes,
    ):
        observed = settled(name, executor)
        changes = stop_everything(observed)
        notes.intend(changes)
        lock.require()
        outcomes = stop_processes(name, changes.changes, observed, executor, sink=sink, passes_over_lost=True)
        lost = _lost(observed, outcomes)
        remains = executor.prove(name, _ports(deployment.plan), _pids(observed, outcomes))
        lock.require()
        bring_home(name, executor)
        forgotten = executor.forget(name, keeps_plan=keeps_history or bool(lost))
        lost |= {node.name: node.reason for node in forgotten.unreachable}
        pending = _remember(deployment, lost)
        leftovers = tuple(_leftovers(name, remains, forgotten.kept))
        notes.is_gone = not (keeps_history or leftovers or pending)
        missed = (f"not reached: {fold(node.name for node in pending)}",) if pending else ()
        notes.missed = "; ".join((*leftovers, *missed)) or None
    return DownOutcome(
        stopped=tuple(outcome.process_id for outcome in outcomes if outcome.was_alive),
        leftovers=leftovers,
        pending=pending,
        unproven=tuple(_unproven(remains, lost)),
        elapsed_s=clock.now() - began,
    )


def _lost(observed: ObservedState, outcomes: Sequence[StopOutcome]) -> dict[str, str]:
    """Why, by node."""
    node_of = {process.id: process.node for process in observed.processes}
    lost = {node.name: node.reason for node in observed.unreachable}
    lost |= {node_of[each.process_id]: each.error or "" for each in outcomes if each.is_unreachable}
    return lost


def _remember(deployment: Deployment, lost: Mapping[str, str]) -> tuple[PendingNode, ...]:
    """Write down what the next `down` must go on with, for us and, on the nodes, for others."""
    store, name = records(), deployment.name
    since = {node.name: node.since for node in store.pending(name)}
    pending = tuple(
        PendingNode(name=node, reason=reason, since=since.get(node, time.time()))
        for node, reason in lost.items()
    )
    if pending and deployment.plan is not None:
        content = json.dumps(plan_to_json(deployment.plan), indent=1).encode()
        deployment.executor.keep_plan(name, content, pending=pending)
    store.note_pending(name, pending)
    return pending


def _ports(plan: LaunchPlan | None) -> list[PortQuery]:
    return [
        PortQuery(node=process.node, host=process.listen, port=claim.port)
        for process in (() if plan is None else plan.processes)
        for claim in process.ports
    ]


def _pids(observed: ObservedState, outcomes: Sequence[StopOutcome]) -> Mapping[str, list[int]]:
    """All that belonged to the deployment, by node."""
    node_of = {process.id: process.node for process in observed.processes}
    found: dict[str, list[int]] = {}
    for outcome in outcomes:
        found.setdefault(node_of[outcome.process_id], []).extend(outcome.pids)
    return found


def _leftovers(name: str, remains: Sequence[Remains], kept: Collection[str]) -> Iterator[str]:
    alive = {process for each in remains for process in each.processes} | set(kept)
    if alive:
        yield f"{fold(sorted(alive))} still lives"
    for each in remains:
        for port in each.ports:
            # A stranger's ports are not our business.
            if port.process is not None and port.process.partition("/")[0] == name:
                held = f"port {port.query.port} on `{port.query.node}`"
                yield f"{held}: held by pid {port.pid} of `{port.process}`"
        for memory in each.memory:
            used = "" if memory.used_mib is None else f"{memory.used_mib} MiB of "
            yield f"{used}device `{memory.device}` on `{each.node}`: held for pid {memory.pid}, which is gone"


def _unproven(remains: Sequence[Remains], lost: Collection[str]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for each in remains:
        if each.unproven is not None and each.node not in lost:
            by_reason.setdefault(each.unproven, []).append(each.node)
    for reason, nodes in by_reason.items():
        yield f"device memory on {fold(nodes)}: {reason}"
