"""Make what runs equal to a plan, from wherever this pdctl reaches the nodes."""

from __future__ import annotations

import json
from collections.abc import Collection, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from pdctl.apply.apply import Change, apply
from pdctl.apply.canary import run_canary
from pdctl.apply.pairs import run_pairs
from pdctl.apply.rollout import RolloutOptions
from pdctl.apply.verify import Verify
from pdctl.apply.workers import require_workers
from pdctl.clock import Clock, SystemClock
from pdctl.diagnostics import DiagnosticError
from pdctl.events import EventSink
from pdctl.executors.base import Executor
from pdctl.executors.link import UNABLE_CODES, unreachable_nodes
from pdctl.executors.shell import UNREACHABLE_CODES
from pdctl.hostlist import fold
from pdctl.lifecycle.access import records
from pdctl.lifecycle.audit import audited
from pdctl.lifecycle.doctor import look_before
from pdctl.lifecycle.interrupt import interruptible
from pdctl.lifecycle.locking import HeldLock, locked, settled
from pdctl.lifecycle.status import observe_status
from pdctl.plan.codec import plan_to_json
from pdctl.plan.model import LaunchPlan
from pdctl.reconcile.model import ChangeSet
from pdctl.reconcile.reconcile import narrowed, reconcile
from pdctl.state.observed import ObservedState, Phase
from pdctl.state.record import DeploymentRecord
from pdctl.status import DeploymentStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    wait: bool = True
    canary: bool = True
    verify: Verify = Verify.ROUTER
    doctor: bool = True  # look first at the nodes where something will start
    deadline_s: float | None = None  # until every process is ready; None: the plan's own


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOutcome:
    changes: ChangeSet
    status: DeploymentStatus
    elapsed_s: float
    awaits: str | None = None  # what must come before anything can run: nodes of a cluster
    left_out: tuple[str, ...] = ()  # ids of processes that nobody asked for and that don't serve


def make_true(
    plan: LaunchPlan,
    executor: Executor,
    sink: EventSink,
    options: UpOptions,
    *,
    verb: str,
    restart_ids: Collection[str] | None = None,
    left: LaunchPlan | None = None,
) -> UpOutcome:
    """Start, replace and stop what must be, wait until all serves, and prove it with one generation.

    With `restart_ids` only those instances are replaced, and what they start after is started where it does
    not run. `left` is the plan in force of nodes that left.
    """
    clock = SystemClock()
    began = clock.now()
    with interruptible(plan.name, executor):
        with (
            _tidied_if_refused(executor),
            _locked(plan, verb, executor, sink) as lock,
            audited(plan.name, verb, executor) as notes,
        ):
            _refuse_unfinished(plan)
            observed = settled(plan.name, executor)
            _refuse_unreachable(plan, observed)
            if left is not None:
                _refuse_unreachable(left, observed, is_left=True)
            change = _wanted(plan, observed, restart_ids)
            notes.intend(change.changes)
            ports = look_before(plan, change.changes, executor, sink) if options.doctor else ()
            apply(
                change,
                executor,
                sink=sink,
                clock=clock,
                options=RolloutOptions(wait=options.wait, deadline_s=options.deadline_s),
                commit=lambda: _keep_plan(plan, executor),
                require_lock=lock.require,
                ports=ports,
            )
            left_out = _left_out(change, executor)
            if options.wait and not left_out:
                _verify(change, executor, sink, clock, options)
        status = observe_status(plan.name, executor, plan)
    return UpOutcome(changes=change.changes, status=status, elapsed_s=clock.now() - began, left_out=left_out)


def _wanted(plan: LaunchPlan, observed: ObservedState, restart_ids: Collection[str] | None) -> Change:
    if restart_ids is None:
        return Change(plan=plan, observed=observed, changes=reconcile(plan, observed))
    changes, scope = narrowed(
        reconcile(plan, observed, restart=restart_ids), plan, observed, instance_ids=restart_ids
    )
    return Change(plan=plan, observed=observed, changes=changes, scope=scope)


def _left_out(change: Change, executor: Executor) -> tuple[str, ...]:
    """What does not serve and was not asked for; with it missing, there is nothing to verify."""
    scope = change.scope
    if scope is None or all(process.id in scope for process in change.plan.processes):
        return ()
    status = observe_status(change.plan.name, executor, change.plan)
    return tuple(
        each.id for each in status.processes if each.id not in scope and each.phase is not Phase.READY
    )


def _verify(change: Change, executor: Executor, sink: EventSink, clock: Clock, options: UpOptions) -> None:
    plan = change.plan
    if not change.changes.is_empty:
        require_workers(plan, executor, clock=clock)
        if options.canary and plan.canary:
            run_canary(plan, executor, sink=sink, clock=clock)
    if options.verify is Verify.PAIRS:
        run_pairs(plan, executor, sink=sink, clock=clock)


def _keep_plan(plan: LaunchPlan, executor: Executor) -> None:
    """Before anything starts, so that whatever an interrupted `up` leaves can be found and taken down."""
    content = json.dumps(plan_to_json(plan), indent=1).encode()
    executor.keep_plan(plan.name, content)
    records().save(DeploymentRecord(name=plan.name, plan=content))
    records().note_pending(plan.name, ())


@contextmanager
def _tidied_if_refused(executor: Executor) -> Generator[None]:
    """Nodes on which nothing was started are left as they were."""
    try:
        yield
    except DiagnosticError:
        executor.tidy()
        raise


@contextmanager
def _locked(plan: LaunchPlan, verb: str, executor: Executor, sink: EventSink) -> Generator[HeldLock]:
    """Where the lock's node can't be reached or can't answer, it may not be the only one: all are told."""
    with ExitStack() as held:
        try:
            lock = held.enter_context(locked(plan.name, verb, executor, sink))
        except DiagnosticError as error:
            if any(each.code in (*UNREACHABLE_CODES, *UNABLE_CODES) for each in error.diagnostics):
                _refuse_unreachable(plan, executor.observe(plan.name))
            raise
        yield lock


def _refuse_unreachable(plan: LaunchPlan, observed: ObservedState, *, is_left: bool = False) -> None:
    names = {node.name for node in plan.nodes}
    needed = [node for node in observed.unreachable if node.name in names]
    left = ("the topology no longer has it, but what runs there must be stopped",) if is_left else ()
    if needed:
        raise unreachable_nodes(needed, notes=(*left, "nothing was started or stopped"))


def _refuse_unfinished(plan: LaunchPlan) -> None:
    """Nodes that an earlier `down` missed are seen to where they still are of the plan, and only there."""
    names = {node.name for node in plan.nodes}
    elsewhere = [node for node in records().pending(plan.name) if node.name not in names]
    if elsewhere:
        raise DiagnosticError.one(
            "PD611",
            f"{fold(node.name for node in elsewhere)} was not taken down with `{plan.name}`, "
            "and is not in the topology any more",
            notes=tuple(f"{node.name} could not be reached: {node.reason}" for node in elsewhere),
            help=f"run `pdctl down {plan.name}` first, when it can be reached",
        )
