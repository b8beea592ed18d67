"""What rules share: a diagnostic at a path, and the flags of a role with the defaults laid under them."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.flagtable.model import Flag
from pdctl.flagtable.reading import as_read
from pdctl.flagtable.shelf import ChosenTable, choose_table
from pdctl.topology.model import Args, ArgValue, Role, Topology
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
    """What `role` gets for `flag`: its own word, else that of `defaults`; None where both are silent.

    Either may say it by an alias, a short form, or the name that another version has for it. The value is as
    the program reads it: 64 for `"64"`.
    """
    for name, args in ((role.name, role.args), ("defaults", topology.defaults.args)):
        if not args:
            continue
        chosen = choose_table(topology.engine.kind, topology.engine.version)
        wanted = None if chosen is None else chosen.table.flag(flag)
        key = flag if flag in args else _other_name(args, wanted, chosen)
        if key is not None:
            value = as_read(wanted, args[key])
            return None if value is None else Stated(value=value, path=(name, "args", key))
    return None


def _other_name(args: Args, wanted: Flag | None, chosen: ChosenTable | None) -> str | None:
    if chosen is None or wanted is None:
        return None
    exact = chosen.table.by_spelling
    for key in args:  # asked for every flag by every rule: nearly all keys are plain names of other flags
        if (exact.get(key) or chosen.table.find(key)) is wanted and key != wanted.negation:
            return key
    return None


def line_of(topology: Topology, path: DocumentPath) -> str:
    """`line 12`, for notes about the other side; the dotted path where the document has no lines."""
    span = topology.source.value(*path)
    return dotted(path) if span is None else f"`{dotted(path)}`, line {span.line}"
