"""The order of a change: see that it can work, get nodes ready, stop what must go, start, wait."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.apply.ports import require_free_ports
from pdctl.apply.prepare import prepare_nodes
from pdctl.apply.rollout import Rollout, RolloutOptions
from pdctl.apply.stop import stop_processes
from pdctl.clock import Clock
from pdctl.events import EventSink
from pdctl.executors.base import Executor
from pdctl.plan.model import LaunchPlan
from pdctl.reconcile.model import ChangeSet, Op
from pdctl.state.observed import ObservedState


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change set with the two states that it lies between."""

    plan: LaunchPlan
    observed: ObservedState
    changes: ChangeSet


def apply(
    change: Change, executor: Executor, *, sink: EventSink, clock: Clock, options: RolloutOptions
) -> None:
    """Make the plan true. Raises `DiagnosticError` on the first step that fails; what runs then goes on.

    Nothing is stopped before all ports are known to be free and all nodes are ready to start.
    """
    plan, changes = change.plan, change.changes
    to_stop = changes.of(Op.STOP, Op.REPLACE)
    to_start = {each.process_id: each.cause for each in changes.of(Op.CREATE, Op.REPLACE)}
    starting = [process for process in plan.processes if process.id in to_start]
    require_free_ports(plan.name, starting, executor, stopping={each.process_id for each in to_stop})
    prepare_nodes(starting, executor, sink)
    stop_processes(plan.name, to_stop, change.observed, executor, sink=sink)
    Rollout(plan=plan, executor=executor, sink=sink, clock=clock, options=options).run(to_start)
