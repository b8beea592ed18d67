"""Can the node be reached, and can the shim run there?"""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnostics import Diagnostic
from pdctl.doctor.model import Finding, Topic
from pdctl.doctor.survey import Survey

REACH = Topic("reach")


def check_reach(survey: Survey) -> Iterator[Finding]:
    for needs in survey.needs:
        if needs.name in survey.facts:
            yield REACH.ok(needs.name, f"answers, with Python {survey.facts[needs.name].python}")
        for fault in survey.faults.get(needs.name, ()):
            yield _without_name(fault, needs.name)


def _without_name(fault: Diagnostic, node: str) -> Finding:
    """The same fault on several nodes shall read the same: what fails is named in front of it."""
    quoted = tuple(line for excerpt in fault.excerpts for line in excerpt.lines)
    text = fault.message.removeprefix(f"{node} ").replace(f" on {node}", "")
    return REACH.error(node, fault.code, text, notes=(*fault.notes, *quoted), help=fault.help)
