"""The engine, router and executor that a topology names exist."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl import plugins
from pdctl.diagnostics import Diagnostic
from pdctl.plugins import Family
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.topology.model import Topology
from pdctl.topology.nearest import suggest
from pdctl.topology.source import DocumentPath


def _kinds_exist(topology: Topology) -> Iterable[Diagnostic]:
    named: tuple[tuple[Family, str, DocumentPath, str], ...] = (
        ("engines", "engine", ("engine", "kind"), topology.engine.kind),
        ("routers", "router", ("router", "kind"), topology.router.kind),
        ("executors", "executor", ("cluster", "executor"), topology.cluster.executor),
    )
    for family, noun, path, name in named:
        if not plugins.exists(family, name):
            hint = suggest(name, plugins.names(family))
            yield at_value(topology, path, "PD126", f"there is no {noun} `{name}`", help=hint)


RULES = (Rule(code="PD126", check=_kinds_exist),)
