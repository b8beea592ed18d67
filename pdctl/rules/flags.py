"""Flags in `args` against the flag table of the program's version.

An engine or router has tables when there is a folder of its kind under `schemas/`. Against another version's
table, the nearest lower one, everything found is a warning: that version may accept what this one does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.flagtable.fit import Fault, Misfit, misfit
from pdctl.flagtable.history import has_flag
from pdctl.flagtable.model import Flag
from pdctl.flagtable.shelf import OWN_TABLES, choose_table, known_versions, load_flag_table, load_history
from pdctl.flagtable.versions import version_key
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.rules.blocks import ArgsBlock, as_args, blocks, normal
from pdctl.rules.unknown_flags import unknown_flag
from pdctl.topology.model import ArgValue, Topology
from pdctl.topology.source import DocumentPath, dotted

_CODES = {Fault.TYPE: "PD233", Fault.CHOICE: "PD234", Fault.NUMBER: "PD235"}


def _known(topology: Topology) -> Iterator[tuple[ArgsBlock, str, ArgValue, Flag]]:
    """Every flag that its program knows and doesn't own, by exact spelling or as the beginning of one."""
    for block in blocks(topology):
        for key, value in block.args.items():
            flag = block.find(key)
            if flag is not None and not block.owns(key):
                yield block, key, value, flag


def _flags_exist(topology: Topology) -> Iterable[Diagnostic]:
    for block in blocks(topology):
        if block.chosen is None:
            continue
        for key in block.args:
            if block.find(key) is None and not block.owns(key) and not _was_there(topology, block, key):
                yield unknown_flag(topology, block, key)


def _was_there(topology: Topology, block: ArgsBlock, key: str) -> bool:
    """For a version without a table, releases around it may tell that it has the flag."""
    version = topology.router.version if block.is_router else topology.engine.version
    if version is None or block.severity is Severity.ERROR:
        return False
    return has_flag(load_history(block.kind), normal(key), version)


def _flags_are_written_out(topology: Topology) -> Iterable[Diagnostic]:
    for block, key, _value, _flag in _known(topology):
        if block.is_abbreviated(key):
            yield _at_key(
                topology,
                block,
                key,
                "PD231",
                f"`{normal(key)}` is short for `{block.longer(key)}`",
                severity=Severity.WARNING,
                notes=(
                    f"{block.label} accepts it while no other flag begins so; a later version may have one",
                ),
                help=f"write `{block.longer(key)}`",
            )


def _flags_stand_once(topology: Topology) -> Iterable[Diagnostic]:
    """In one block: between `defaults` and a role, the role's word wins, whichever alias either uses."""
    first: dict[tuple[DocumentPath, str], tuple[str, Flag]] = {}
    for block, key, value, flag in _known(topology):
        if value is None or value is False:
            continue
        earlier = first.setdefault((block.path, flag.setting), (key, flag))
        if earlier[0] == key:
            continue
        is_same = earlier[1].name == flag.name
        yield _at_key(
            topology,
            block,
            key,
            "PD232",
            f"`{earlier[0]}` and `{key}` are one flag" if is_same else f"`{key}` overrides `{earlier[0]}`",
            severity=Severity.ERROR if is_same else Severity.WARNING,
            notes=() if is_same else (f"both write one setting of {block.label}, and the later one stays",),
            help=f"keep one of them, `{flag.name if is_same or not flag.is_deprecated else earlier[1].name}`",
        )


def _values_fit(topology: Topology) -> Iterable[Diagnostic]:
    for block, key, value, flag in _known(topology):
        found = misfit(flag, value)
        if found is not None:
            path = (*block.path, key) if found.item is None else (*block.path, key, found.item)
            yield at_value(
                topology,
                path,
                _CODES[found.fault],
                found.message,
                severity=_severity(block, flag, found),
                notes=(block.compared_with, *_notes(flag, found)),
                help=found.help,
            )


def _severity(block: ArgsBlock, flag: Flag, found: Misfit) -> Severity:
    may_be_right = flag.is_open and found.fault is Fault.CHOICE and not found.is_slip
    return Severity.WARNING if may_be_right else block.severity


def _notes(flag: Flag, found: Misfit) -> Iterator[str]:
    if found.fault is Fault.CHOICE and flag.is_open and not found.is_slip:
        yield "plug-ins of the engine may add choices"
    if found.fault is Fault.CHOICE and flag.choices is not None:
        yield f"it has {', '.join(f'`{each}`' for each in flag.choices)}"


def _flags_have_a_future(topology: Topology) -> Iterable[Diagnostic]:
    for block, key, value, flag in _known(topology):
        if flag.is_deprecated and value is not None and value is not False:
            says = f"use {as_args(flag.successor)}" if flag.successor else "remove it"
            yield _at_key(
                topology,
                block,
                key,
                "PD236",
                f"{block.label} refuses `{flag.name}`"
                if flag.is_refused
                else f"`{flag.name}` is deprecated in {block.label}",
                severity=block.severity if flag.is_refused else Severity.WARNING,
                notes=(),
                help=says,
            )


def _version_has_a_table(topology: Topology) -> Iterable[Diagnostic]:
    for section, kind, version in _versions(topology):
        chosen = choose_table(kind, version)
        if version is None or chosen is None or chosen.is_exact or not _is_number(version):
            continue
        yield at_value(
            topology,
            (section, "version"),
            "PD237",
            f"pdctl has no flag table of {kind} {version}",
            severity=Severity.WARNING,
            notes=(
                f"`args` are compared with the flags of {chosen.table.label}, and faults are only warnings",
            ),
            help=f"`pdctl engine inspect {kind} --python PATH --write DIR` makes one; set {OWN_TABLES}=DIR",
        )


def _versions_are_numbers(topology: Topology) -> Iterable[Diagnostic]:
    """`v0.5.23` and `latest` are names of tags and images. Without a table, faults would only be warnings."""
    for section, kind, version in _versions(topology):
        if version is None or _is_number(version) or load_flag_table(kind, version) is not None:
            continue
        known = known_versions(kind)
        if not known:
            continue  # a program without tables, whose versions are its own
        number = version.strip().removeprefix("v")
        yield at_value(
            topology,
            (section, "version"),
            "PD247",
            f"`{version}` is no version number of {kind}",
            help=f"did you mean `{number}`?"
            if _is_number(number)
            else f"write the number that is installed, such as `{known[-1]}`, or leave it out",
        )


def _is_number(version: str) -> bool:
    return version[:1].isdecimal() and version == version.strip() and version_key(version) is not None


def _versions(topology: Topology) -> tuple[tuple[str, str, str | None], ...]:
    engine, router = topology.engine, topology.router
    return ("engine", engine.kind, engine.version), ("router", router.kind, router.version)


def _at_key(
    topology: Topology,
    block: ArgsBlock,
    key: str,
    code: str,
    message: str,
    *,
    severity: Severity,
    notes: tuple[str, ...],
    help: str | None,
) -> Diagnostic:
    return Diagnostic(
        code=code,
        message=message,
        severity=severity,
        span=topology.source.key(*block.path, key),
        path=dotted((*block.path, key)),
        notes=notes,
        help=help,
    )


RULES = (
    Rule(code="PD230", check=_flags_exist),
    Rule(code="PD231", check=_flags_are_written_out),
    Rule(code="PD232", check=_flags_stand_once),
    Rule(code="PD233", check=_values_fit),  # and PD234, PD235
    Rule(code="PD236", check=_flags_have_a_future),
    Rule(code="PD237", check=_version_has_a_table),
    Rule(code="PD247", check=_versions_are_numbers),
)
