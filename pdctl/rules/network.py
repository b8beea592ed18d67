"""Ports that the document asks for can be had."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.topology.model import Topology
from pdctl.topology.source import DocumentPath

_FIRST_UNPRIVILEGED_PORT = 1024


def _ports_need_no_privilege(topology: Topology) -> Iterable[Diagnostic]:
    asked: tuple[tuple[DocumentPath, int | None], ...] = (
        (("prefill", "port"), topology.prefill.port),
        (("prefill", "bootstrap_port"), topology.prefill.bootstrap_port),
        (("decode", "port"), topology.decode.port),
        (("router", "port"), topology.router.port),
    )
    for path, port in asked:
        if port is not None and port < _FIRST_UNPRIVILEGED_PORT:
            yield at_value(
                topology,
                path,
                "PD409",
                f"port {port} is below {_FIRST_UNPRIVILEGED_PORT}: only root may listen there",
                severity=Severity.WARNING,
                help=f"use a port from {_FIRST_UNPRIVILEGED_PORT} up, behind a proxy if clients need {port}",
            )


RULES = (Rule(code="PD409", check=_ports_need_no_privilege),)
