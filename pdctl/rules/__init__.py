"""What must hold for a topology beyond its schema: one family of rules per file.

A rule refuses what is certainly wrong and warns of what probably is: one that could refuse a deployment known
to work is a warning. Engines and routers bring rules of their own (`Program.rules`).
"""

from __future__ import annotations

from pdctl import plugins
from pdctl.diagnostics import Diagnostic
from pdctl.program import Rule
from pdctl.rules import (
    flags,
    json_text,
    kinds,
    network,
    pairing,
    passed_on,
    placement,
    secrets,
    shape,
    shell_words,
    slurm,
)
from pdctl.topology.model import Topology

__all__ = ["Rule", "all_rules", "check"]


def all_rules(topology: Topology) -> tuple[Rule, ...]:
    """The rules of every family, and those of the engine and the router that the topology names."""
    families = (
        kinds.RULES,
        shape.RULES,
        pairing.RULES,
        placement.RULES,
        network.RULES,
        passed_on.RULES,
        flags.RULES,
        json_text.RULES,
        secrets.RULES,
        shell_words.RULES,
        slurm.RULES,
    )
    named = (
        plugins.program("engines", topology.engine.kind),
        plugins.program("routers", topology.router.kind),
    )
    own = tuple(program.rules() for program in named if program is not None)
    return tuple(rule for family in (*families, *own) for rule in family)


def check(topology: Topology) -> tuple[Diagnostic, ...]:
    """Everything that the rules find, in the order of the document."""
    found = [diagnostic for rule in all_rules(topology) for diagnostic in rule.check(topology)]
    return tuple(sorted(dict.fromkeys(found), key=_place))


def _place(diagnostic: Diagnostic) -> tuple[str, int, int, str]:
    span = diagnostic.span
    return (
        (span.file, span.line, span.column, diagnostic.code)
        if span is not None
        else ("", 0, 0, diagnostic.code)
    )
