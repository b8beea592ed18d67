"""A document as a tree in which every key and value knows where it was written.

Profiles, `--set` and environment references all rewrite this tree; plain values come out at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pdctl.diagnostics import Span
from pdctl.topology.source import DocumentPath, SourceMap

ScalarValue = str | int | float | bool | None
Value = ScalarValue | list["Value"] | dict[str, "Value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    value: ScalarValue
    span: Span
    is_plain: bool = False  # written without quotes: its type comes from its spelling


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    items: tuple[Tree, ...]
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    key_span: Span
    value: Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    entries: Mapping[str, Entry]
    span: Span


Tree = Scalar | Items | Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat:
    """A tree taken apart: what it says, and where each part stands."""

    value: Value
    source: SourceMap


def flatten(tree: Tree) -> Flat:
    values: dict[DocumentPath, Span] = {}
    keys: dict[DocumentPath, Span] = {}

    def visit(node: Tree, path: DocumentPath) -> Value:
        values[path] = node.span
        match node:
            case Scalar():
                return node.value
            case Items():
                return [visit(item, (*path, index)) for index, item in enumerate(node.items)]
            case Table():
                result: dict[str, Value] = {}
                for name, entry in node.entries.items():
                    keys[(*path, name)] = entry.key_span
                    result[name] = visit(entry.value, (*path, name))
                return result

    value = visit(tree, ())
    return Flat(value=value, source=SourceMap(values=values, keys=keys))


def merge(base: Tree, over: Tree) -> Tree:
    """Lay `over` on `base`: mappings merge key by key, anything else is replaced as a whole."""
    if not (isinstance(base, Table) and isinstance(over, Table)):
        return over
    entries = dict(base.entries)
    for name, entry in over.entries.items():
        below = entries.get(name)
        merged = entry.value if below is None else merge(below.value, entry.value)
        entries[name] = Entry(key_span=entry.key_span, value=merged)
    return Table(entries=entries, span=base.span)


def is_private(key: str) -> bool:
    """`x-` keys are the user's own: never checked, never used."""
    return key.startswith("x-")
