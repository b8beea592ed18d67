"""Stop a deployment and prove that it is gone."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.apply.stop import stop_processes
from pdctl.clock import SystemClock
from pdctl.events import EventSink
from pdctl.executors.base import Executor
from pdctl.executors.calls import PortQuery
from pdctl.lifecycle.access import open_deployment, records
from pdctl.lifecycle.audit import audited
from pdctl.lifecycle.interrupt import interruptible
from pdctl.lifecycle.locking import locked
from pdctl.plan.model import LaunchPlan
from pdctl.reconcile.reconcile import stop_everything


@dataclass(frozen=True, slots=True, kw_only=True)
class DownOutcome:
    """`leftovers` names what could not be proven gone; empty means that nothing is left."""

    stopped: tuple[str, ...]
    leftovers: tuple[str, ...]
    elapsed_s: float


def down(name: str, sink: EventSink, *, purge: bool = False) -> DownOutcome:
    """Stop every process, its descendants too, and remove the run directories.

    Stopping what never ran, or what is down already, is no fault. `purge` forgets the record as well.
    """
    clock = SystemClock()
    began = clock.now()
    deployment = open_deployment(name)
    executor = deployment.executor
    deployment.require_known()
    with (
        interruptible(name, executor),
        locked(name, "down", executor, sink, even_on_a_full_disk=True),
        audited(name, "down") as note,
    ):
        observed = executor.observe(name)
        changes = stop_everything(observed)
        note(changes)
        outcomes = stop_processes(name, changes.changes, observed, executor, sink=sink)
        leftovers = [f"node `{node.name}`: {node.reason}" for node in observed.unreachable]
        if deployment.plan is not None:
            leftovers += _held_ports(deployment.plan, executor)
        leftovers += [f"process `{each}` still lives" for each in executor.forget(name)]
    if not leftovers:
        records().remove(name) if purge else records().retire(name)
    return DownOutcome(
        stopped=tuple(outcome.process_id for outcome in outcomes if outcome.was_alive),
        leftovers=tuple(leftovers),
        elapsed_s=clock.now() - began,
    )


def _held_ports(plan: LaunchPlan, executor: Executor) -> list[str]:
    """Ports of the plan that a process of this deployment still holds; a stranger's are not our business."""
    queries = [
        PortQuery(node=process.node, host=process.listen, port=claim.port)
        for process in plan.processes
        for claim in process.ports
    ]
    return [
        f"port {answer.query.port} on `{answer.query.node}`: held by pid {answer.pid} of `{answer.process}`"
        for answer in executor.ports(queries)
        if answer.process is not None and answer.process.partition("/")[0] == plan.name
    ]
