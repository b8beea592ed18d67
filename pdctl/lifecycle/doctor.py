"""Look whether nodes can run a plan: all of it for `doctor`, what is quick before `up`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from pdctl.clock import Clock, SystemClock
from pdctl.diagnostics import Diagnostic, DiagnosticError, has_errors
from pdctl.doctor.examine import examine
from pdctl.doctor.model import DoctorReport
from pdctl.doctor.survey import BEFORE_UP, EVERYTHING, survey
from pdctl.executors.base import Executor, NodeAccess
from pdctl.lifecycle.access import open_deployment
from pdctl.lifecycle.planning import Planned
from pdctl.plan.model import LaunchPlan
from pdctl.topology.model import Topology


def doctor(planned: Planned) -> DoctorReport:
    """Of a topology, whether or not it runs."""
    return _look(planned.plan, planned.executor, planned_versions(planned.topology))


def doctor_of_deployment(name: str) -> DoctorReport:
    """Of a deployment as it was last applied. Its plan does not tell versions, so they are only compared."""
    deployment = open_deployment(name)
    return _look(deployment.require_plan(), deployment.executor, {})


def quick_faults(plan: LaunchPlan, nodes: NodeAccess, node_names: Collection[str]) -> tuple[Diagnostic, ...]:
    """What would keep processes from starting on these nodes, by one call each. Raises when any is an error.

    Ports are not looked at: applying a plan does that, knowing which processes will give theirs up.
    """
    part = replace(plan, processes=tuple(each for each in plan.processes if each.node in node_names))
    verdicts = examine(survey(part, nodes, BEFORE_UP))
    faults = tuple(verdict.diagnostic() for verdict in verdicts if verdict.is_fault)
    if has_errors(faults):
        raise DiagnosticError(faults)
    return faults


def planned_versions(topology: Topology) -> dict[str, str]:
    """By package. An engine that carries its kind's name in its package is the rule."""
    version = topology.engine.version
    return {} if version is None else {topology.engine.kind: version}


def _look(plan: LaunchPlan, executor: Executor, versions: Mapping[str, str]) -> DoctorReport:
    clock: Clock = SystemClock()
    began = clock.now()
    found = survey(plan, executor, EVERYTHING, versions=versions)
    return DoctorReport(
        deployment=plan.name,
        nodes=tuple(each.name for each in found.needs),
        verdicts=examine(found),
        elapsed_s=clock.now() - began,
    )
