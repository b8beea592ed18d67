"""Ids that people type, resolved against a plan."""

from __future__ import annotations

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.plan.model import LaunchPlan
from pdctl.topology.nearest import suggest


def instances_of(plan: LaunchPlan, ids: tuple[str, ...]) -> frozenset[str]:
    """Instance ids meant by `ids`, which name instances or processes. All unknown ones are told at once."""
    owner_of = {process.id: process.instance_id for process in plan.processes}
    owner_of |= {instance.id: instance.id for instance in plan.instances}
    faults = [_unknown(each, plan, tuple(owner_of)) for each in ids if each not in owner_of]
    if faults:
        raise DiagnosticError(faults)
    return frozenset(owner_of[each] for each in ids)


def processes_of(plan: LaunchPlan, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Process ids meant by `ids`, in plan order; no ids mean all."""
    known = {process.id for process in plan.processes}
    instances = instances_of(plan, tuple(each for each in ids if each not in known))
    return tuple(
        process.id
        for process in plan.processes
        if not ids or process.id in ids or process.instance_id in instances
    )


def _unknown(wanted: str, plan: LaunchPlan, known: tuple[str, ...]) -> Diagnostic:
    return Diagnostic(
        code="PD609",
        message=f"`{plan.name}` has no instance or process `{wanted}`",
        notes=(f"it has {', '.join(f'`{instance.id}`' for instance in plan.instances[:8])}",),
        help=suggest(wanted, known),
    )
