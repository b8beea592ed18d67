"""What to say about a flag that a program doesn't have: where it went, or what was meant."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnostics import Diagnostic
from pdctl.flagtable.history import History
from pdctl.flagtable.model import FlagTable
from pdctl.flagtable.shelf import load_history
from pdctl.flagtable.versions import in_order
from pdctl.rules.blocks import ArgsBlock, as_args, normal
from pdctl.topology.model import Topology
from pdctl.topology.nearest import nearest
from pdctl.topology.source import dotted

_MAX_STEPS = 5  # renamed, and renamed again


def unknown_flag(topology: Topology, block: ArgsBlock, key: str) -> Diagnostic:
    assert block.chosen is not None
    table, name, past = block.chosen.table, normal(key), load_history(block.kind)
    candidates = table.abbreviated(name)
    is_ambiguous = len(candidates) > 1 and name not in past.spans
    return Diagnostic(
        code="PD230",
        message=f"`{name}` could be any of {len(candidates)} flags of {table.label}"
        if is_ambiguous
        else f"{table.label} has no flag `{name}`",
        severity=block.severity,
        span=topology.source.key(*block.path, key),
        path=dotted((*block.path, key)),
        notes=tuple(_when(block.kind, name, table, past)),
        help=_instead(name, table, past),
    )


def _when(kind: str, name: str, table: FlagTable, past: History) -> Iterator[str]:
    """When it was there, if ever, as far as releases were looked at."""
    span = past.spans.get(name)
    if span is None:
        return
    first, last = span
    if in_order((table.version, last))[-1] == table.version:
        yield f"removed: {kind} {last} is the last release that has it{_among(past)}"
    else:
        yield f"{kind} {first} is the first release that has it{_among(past)}"


def _among(past: History) -> str:
    return f", of {len(past.sampled)} looked at from {past.sampled[0]} to {past.sampled[-1]}"


def _instead(name: str, table: FlagTable, past: History) -> str | None:
    successor = _successor(name, table, past)
    if successor is not None:
        return f"use {as_args(successor)}"
    candidates = table.abbreviated(name)
    if candidates:
        return f"write one of {', '.join(f'`{each}`' for each in sorted(candidates))}"
    near = nearest(name, table.by_spelling)
    return None if near is None else f"did you mean `{near}`?"


def _successor(name: str, table: FlagTable, past: History) -> str | None:
    """What releases told to use instead, followed until the table has it."""
    for _ in range(_MAX_STEPS):
        told = past.successors.get(name)
        if told is None:
            return None
        name = told.lstrip("-").partition("=")[0].partition(" ")[0]
        if table.flag(name) is not None:
            return told.partition(" ")[0]
    return None
