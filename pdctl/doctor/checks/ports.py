"""Can every process listen on its ports?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pdctl.apply.ports import port_fault
from pdctl.doctor.model import Finding, Topic
from pdctl.doctor.survey import Survey
from pdctl.executors.calls import PortAnswer

PORTS = Topic("ports")


def check_ports(survey: Survey) -> Iterator[Finding]:
    """What holds a port may be the very process that the plan wants there."""
    if not survey.scope.ports:
        return
    for needs, facts in survey.answered:
        known = {here.name for here in facts.deployments}
        taken = [
            (need, answer)
            for need, answer in zip(needs.ports, facts.ports, strict=True)
            if answer.problem is not None and answer.process != f"{survey.plan.name}/{need.process.id}"
        ]
        if taken and all(_is_listening_doctor(answer) for _need, answer in taken):
            yield PORTS.skipped(needs.name, "another doctor listens there for a moment")
            continue
        for need, answer in taken:
            fault = port_fault(need.process, need.claim, answer, known=known)
            text = fault.message.replace(f" on `{needs.name}`", "")
            found = PORTS.error(needs.name, fault.code, text, notes=fault.notes, help=fault.help)
            yield replace(found, names=fault.names)
        if not taken:
            is_running = any(answer.problem is not None for answer in facts.ports)
            yield PORTS.ok(needs.name, "held by this very deployment" if is_running else "free")


def _is_listening_doctor(answer: PortAnswer) -> bool:
    """The attendant of another operator's survey, by its command line."""
    words = (answer.command or "").split(" ")
    return len(words) > 4 and words[1:3] == ["-I", "-S"] and words[4] == "survey"
