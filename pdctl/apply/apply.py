"""The order of a change: see that it can work, get nodes ready, then stop, start and wait."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pdctl.apply.ports import require_free_ports
from pdctl.apply.prepare import prepare_nodes
from pdctl.apply.rollout import Rollout, RolloutOptions
from pdctl.apply.stop import stop_processes
from pdctl.clock import Clock
from pdctl.events import EventSink
from pdctl.executors.base import Executor
from pdctl.executors.calls import PortAnswer
from pdctl.plan.model import LaunchPlan, RoleKind
from pdctl.reconcile.model import ChangeSet, Op
from pdctl.state.observed import ObservedState


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change set with the two states that it lies between."""

    plan: LaunchPlan
    observed: ObservedState
    changes: ChangeSet
    scope: Collection[str] | None = None  # ids of the processes that it is about; None: all of the plan


def apply(
    change: Change,
    executor: Executor,
    *,
    sink: EventSink,
    clock: Clock,
    options: RolloutOptions,
    commit: Callable[[], None],
    require_lock: Callable[[], None] = lambda: None,
    ports: Sequence[PortAnswer] = (),
) -> None:
    """Make the plan true. Raises `DiagnosticError` on the first step that fails; what runs then goes on.

    `require_lock` raises when the lock is lost, which it is asked before each step that changes something.
    `commit` is called once all ports are known to be free and all nodes are ready: before it nothing is
    touched, after it the new plan is the one in force. A process that is replaced goes down just before its
    successor starts, so a router keeps serving until the engines behind its successor are ready. `ports` are
    answers that somebody has just got.
    """
    plan, changes = change.plan, change.changes
    strays = changes.of(Op.STOP)
    starts = {each.process_id: each for each in changes.of(Op.CREATE, Op.REPLACE)}
    starting = [process for process in plan.processes if process.id in starts]
    stopping = {each.process_id for each in (*strays, *changes.of(Op.REPLACE))}
    require_free_ports(plan.name, starting, executor, stopping=stopping, answered=ports)
    prepare_nodes(starting, executor, sink)
    require_lock()
    commit()
    rollout = Rollout(
        plan=plan,
        observed=change.observed,
        executor=executor,
        sink=sink,
        clock=clock,
        options=options,
        scope=change.scope,
        require_lock=require_lock,
    )
    # New engines may need the place of old ones. Otherwise old ones go last: a router may still send there.
    strays_first = any(process.role is not RoleKind.ROUTER for process in starting)
    if strays_first:
        stop_processes(plan.name, strays, change.observed, executor, sink=sink)
    rollout.run(starts)
    if not strays_first:
        require_lock()
        stop_processes(plan.name, strays, change.observed, executor, sink=sink)
