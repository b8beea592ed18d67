"""What rules share: a diagnostic at a path, and the flags of a role with the defaults laid under them."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.topology.model import ArgValue, Role, Topology
from pdctl.topology.source import DocumentPath, dotted


def at_value(
    topology: Topology,
    path: DocumentPath,
    code: str,
    message: str,
    *,
    severity: Severity = Severity.ERROR,
    label: str | None = None,
    notes: tuple[str, ...] = (),
    help: str | None = None,
) -> Diagnostic:
    return Diagnostic(
        code=code,
        message=message,
        severity=severity,
        span=topology.source.value(*path),
        label=label,
        path=dotted(path),
        notes=notes,
        help=help,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """The value of a flag or variable for one role, and the path where the document states it."""

    value: ArgValue
    path: DocumentPath


def stated_arg(topology: Topology, role: Role, flag: str) -> Stated | None:
    """What `role` gets for `flag`: its own word, else that of `defaults`; None where both are silent."""
    if role.args.get(flag) is not None:
        return Stated(value=role.args[flag], path=(role.name, "args", flag))
    if topology.defaults.args.get(flag) is not None and flag not in role.args:
        return Stated(value=topology.defaults.args[flag], path=("defaults", "args", flag))
    return None


def stated_env(topology: Topology, role: Role, name: str) -> Stated | None:
    """What `role` gets for a variable: its own word, else that of `defaults`; None where both are silent."""
    for path, env in (((role.name, "env"), role.env), (("defaults", "env"), topology.defaults.env)):
        if name in env:
            return Stated(value=env[name], path=(*path, name))
    return None


def line_of(topology: Topology, path: DocumentPath) -> str:
    """`line 12`, for notes about the other side; the dotted path where the document has no lines."""
    span = topology.source.value(*path)
    return dotted(path) if span is None else f"`{dotted(path)}`, line {span.line}"
