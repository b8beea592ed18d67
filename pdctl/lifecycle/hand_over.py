"""Acts on a deployment that a deputy works on: what an operator's pdctl does of them, elsewhere.

The deputy takes lock, plan and history into its own hands. An operator may leave at any moment; what was
begun goes on.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import replace

from pdctl.clock import SystemClock
from pdctl.diagnostics import DiagnosticError
from pdctl.events import EventSink
from pdctl.executors.base import Executor
from pdctl.executors.deputy import Attendance, Deputy, Request
from pdctl.fields import Fields
from pdctl.lifecycle.access import Deployment, plan_on_nodes, records
from pdctl.lifecycle.acts_json import changes_from, down_from, options_json
from pdctl.lifecycle.audit import audited, bring_home
from pdctl.lifecycle.interrupt import interrupted
from pdctl.lifecycle.locking import locked
from pdctl.lifecycle.make_true import UpOptions, UpOutcome
from pdctl.lifecycle.planning import Planned
from pdctl.lifecycle.status import observe_status
from pdctl.lifecycle.take_down import DownOutcome, take_down
from pdctl.plan.codec import plan_to_json
from pdctl.plan.model import LaunchPlan
from pdctl.reconcile.model import ChangeSet
from pdctl.state.lock import operator
from pdctl.state.record import DeploymentRecord

BESIDE_GRACE_S = 30.0  # that the deputy needs beside the graces of processes
LOST_DEPUTY = "PD543"


def up_by_deputy(deputy: Deputy, planned: Planned, sink: EventSink, options: UpOptions) -> UpOutcome:
    """Ask for nodes and a deputy unless there are, and for the act; wait until it serves, if so wanted."""
    began = SystemClock().now()
    request = Request(verb="up", who=operator(), document=planned.document, options=options_json(options))
    with _withdrawn_if_interrupted(planned.plan.name, deputy, request, planned.executor):
        _begin(deputy, planned, request, sink)
        _remember(planned.plan)
        if not options.wait:
            return _unawaited(planned.executor, planned.plan, deputy, SystemClock().now() - began)
        found = deputy.await_outcome(request, sink)
    return _outcome(planned.executor, planned.plan, found, SystemClock().now() - began)


def restart_by_deputy(
    deputy: Deputy,
    deployment: Deployment,
    instances: Collection[str],
    sink: EventSink,
    options: UpOptions,
) -> UpOutcome:
    began = SystemClock().now()
    name, plan = deployment.name, deployment.require_plan()
    if deputy.attendance() is not Attendance.AT_WORK:
        raise DiagnosticError.one(
            "PD616",
            f"nobody works on `{name}`: it has no nodes now",
            notes=() if (words := deputy.last_words()) is None else (words,),
            help="`pdctl up FILE` brings it up",
        )
    request = Request(
        verb="restart", who=operator(), ids=tuple(sorted(instances)), options=options_json(options)
    )
    with _withdrawn_if_interrupted(name, deputy, request, deployment.executor):
        deputy.hand_over(request)
        if not options.wait:
            return _unawaited(deployment.executor, plan, deputy, SystemClock().now() - began)
        found = deputy.await_outcome(request, sink)
    return _outcome(deployment.executor, plan, found, SystemClock().now() - began)


def down_by_deputy(deputy: Deputy, deployment: Deployment, sink: EventSink) -> DownOutcome:
    """Have all of it ended by who started it, then the deputy itself, then see that nothing is left."""
    began = SystemClock().now()
    name, executor = deployment.name, deployment.executor
    attendance, grace_s = deputy.attendance(), _ending_s(deployment.plan)
    outcome = DownOutcome(stopped=(), leftovers=(), pending=(), unproven=(), elapsed_s=0.0)
    match attendance:
        case Attendance.AT_WORK:
            asked = _asked_down(deputy, deployment, sink)
            outcome = asked or outcome
            left = deputy.dismiss(grace_s=grace_s, is_ending=asked is not None)
        case Attendance.GONE:
            outcome = take_down(deployment, sink, keeps_history=True)
            left = ()
        case Attendance.NONE | Attendance.AWAITED:
            left = deputy.dismiss(grace_s=grace_s, is_ending=attendance is Attendance.NONE)
    if not left:
        outcome = _left_to_the_cluster(name, outcome)
    outcome = replace(outcome, leftovers=(*outcome.leftovers, *left))
    bring_home(name, executor)
    if attendance in (Attendance.NONE, Attendance.AWAITED):
        _note_end(name, executor, deputy.last_words())
    if outcome.is_complete:
        deputy.clear()
    return replace(outcome, elapsed_s=SystemClock().now() - began)


def _begin(deputy: Deputy, planned: Planned, request: Request, sink: EventSink) -> None:
    """One deputy, however many operators ask at a time."""
    if _is_there(deputy):
        deputy.hand_over(request)
        return
    name, executor = planned.plan.name, planned.executor
    holder = executor.standing(name).holder
    if holder is not None and deputy.is_over(holder):
        executor.unlock(name, holder)
    with locked(name, "up", executor, sink):
        if _is_there(deputy):
            deputy.hand_over(request)
        else:
            deputy.engage(planned.topology, request, sink)


def _is_there(deputy: Deputy) -> bool:
    return deputy.attendance() in (Attendance.AWAITED, Attendance.AT_WORK)


def _asked_down(deputy: Deputy, deployment: Deployment, sink: EventSink) -> DownOutcome | None:
    """None when it is gone before it could answer: then Slurm ends what there is."""
    request = Request(verb="down", who=operator())
    with _withdrawn_if_interrupted(deployment.name, deputy, request, deployment.executor):
        deputy.hand_over(request)
        try:
            return down_from(deputy.await_outcome(request, sink))
        except DiagnosticError as error:
            if any(each.code != LOST_DEPUTY for each in error.diagnostics):
                raise
            return None


def _left_to_the_cluster(name: str, outcome: DownOutcome) -> DownOutcome:
    """Nodes that could not be reached: the job is over, so the cluster ends there what was part of it."""
    unproven = tuple(
        f"{node.name} could not be reached ({node.reason}); the cluster itself ends what the job had there"
        for node in outcome.pending
    )
    records().note_pending(name, ())
    return replace(outcome, pending=(), unproven=(*outcome.unproven, *unproven))


def _note_end(name: str, executor: Executor, words: str | None) -> None:
    """Nobody else is left who could write this line."""
    with audited(name, "down", executor) as notes:
        notes.is_gone = True
        notes.changes = () if words is None else (words,)


def _outcome(executor: Executor, plan: LaunchPlan, found: Fields, elapsed_s: float) -> UpOutcome:
    """With the nodes that the deputy's plan has."""
    in_force = plan_on_nodes(plan.name, executor) or plan
    _remember(in_force)
    return UpOutcome(
        changes=changes_from(found),
        status=observe_status(plan.name, executor, in_force),
        elapsed_s=elapsed_s,
        left_out=found.texts("left_out"),
    )


def _unawaited(executor: Executor, plan: LaunchPlan, deputy: Deputy, elapsed_s: float) -> UpOutcome:
    is_at_work = deputy.attendance() is Attendance.AT_WORK
    return UpOutcome(
        changes=ChangeSet(changes=()),
        status=observe_status(plan.name, executor, plan),
        elapsed_s=elapsed_s,
        awaits="the request is handed over" if is_at_work else "the job waits for its nodes",
    )


def _remember(plan: LaunchPlan) -> None:
    content = json.dumps(plan_to_json(plan), indent=1).encode()
    records().save(DeploymentRecord(name=plan.name, plan=content))


def _ending_s(plan: LaunchPlan | None) -> float:
    """The router ends first, with its requests, and then all engines at once."""
    graces = [process.grace_s for process in plan.processes] if plan is not None else []
    return 2 * max(graces, default=0.0) + BESIDE_GRACE_S


@contextmanager
def _withdrawn_if_interrupted(
    name: str, deputy: Deputy, request: Request, executor: Executor
) -> Generator[None]:
    """Ctrl-C takes back what nobody has begun with; what was begun goes on without us."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if deputy.withdraw(request) and deputy.attendance() is Attendance.NONE:
            records().retire(name)
        raise interrupted(name, executor, interrupt) from None
