"""Can every process listen on its ports?"""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.apply.ports import port_fault
from pdctl.doctor.model import Finding, Topic
from pdctl.doctor.survey import Survey

PORTS = Topic("ports")


def check_ports(survey: Survey) -> Iterator[Finding]:
    """What holds a port may be the very process that the plan wants there."""
    if not survey.scope.ports:
        return
    for needs, facts in survey.answered:
        known = {here.name for here in facts.deployments}
        faults = [
            port_fault(need.process, need.claim, answer, known=known)
            for need, answer in zip(needs.ports, facts.ports, strict=True)
            if answer.problem is not None and answer.process != f"{survey.plan.name}/{need.process.id}"
        ]
        for fault in faults:
            text = fault.message.replace(f" on `{needs.name}`", "")
            yield PORTS.error(needs.name, fault.code, text, notes=fault.notes, help=fault.help)
        if not faults:
            is_running = any(answer.problem is not None for answer in facts.ports)
            yield PORTS.ok(needs.name, "held by this very deployment" if is_running else "free")
