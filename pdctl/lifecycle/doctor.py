"""Look whether nodes can run a plan: all of it for `doctor`, what is quick before `up`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pdctl.clock import Clock, SystemClock
from pdctl.diagnostics import DiagnosticError, has_errors
from pdctl.doctor.examine import examine
from pdctl.doctor.model import DoctorReport
from pdctl.doctor.survey import BEFORE_UP, EVERYTHING, survey
from pdctl.events import EventSink, Warned
from pdctl.executors.base import Executor, NodeAccess
from pdctl.executors.calls import PortAnswer
from pdctl.lifecycle.access import open_deployment
from pdctl.lifecycle.planning import Planned
from pdctl.plan.model import LaunchPlan
from pdctl.reconcile.model import ChangeSet, Op
from pdctl.topology.model import Topology


def doctor(planned: Planned) -> DoctorReport:
    """Of a topology, whether or not it runs."""
    return _look(planned.plan, planned.executor, planned_versions(planned.topology))


def doctor_of_deployment(name: str) -> DoctorReport:
    """Of a deployment as it was last applied. Its plan does not tell versions, so they are only compared."""
    deployment = open_deployment(name)
    return _look(deployment.require_plan(), deployment.executor, {})


def look_before(
    plan: LaunchPlan, changes: ChangeSet, nodes: NodeAccess, sink: EventSink
) -> tuple[PortAnswer, ...]:
    """What would keep processes from starting, by one call to each node that will start any.

    Raises `DiagnosticError` with all errors and warnings; warnings alone are told, and the act goes on. Ports
    are asked for in the same call, but not judged: their answers are for applying the plan, which knows which
    processes will give theirs up.
    """
    starting = {each.process_id for each in changes.of(Op.CREATE, Op.REPLACE)}
    processes = tuple(each for each in plan.processes if each.id in starting)
    if not processes:
        return ()
    found = survey(replace(plan, processes=processes), nodes, BEFORE_UP)
    verdicts = examine(replace(found, scope=replace(found.scope, ports=False)))
    faults = tuple(verdict.diagnostic() for verdict in verdicts if verdict.is_fault)
    if has_errors(faults):
        raise DiagnosticError(faults)
    for each in faults:
        sink.on(Warned(code=each.code, message=each.message, help=each.help))
    return tuple(answer for _needs, facts in found.answered for answer in facts.ports)


def planned_versions(topology: Topology) -> dict[str, str]:
    """By package. An engine that carries its kind's name in its package is the rule."""
    version = topology.engine.version
    return {} if version is None else {topology.engine.kind: version}


def _look(plan: LaunchPlan, executor: Executor, versions: Mapping[str, str]) -> DoctorReport:
    clock: Clock = SystemClock()
    began = clock.now()
    try:
        found = survey(plan, executor, EVERYTHING, versions=versions)
    finally:
        executor.tidy()
    return DoctorReport(
        deployment=plan.name,
        nodes=tuple(each.name for each in found.needs),
        verdicts=examine(found),
        elapsed_s=clock.now() - began,
    )
