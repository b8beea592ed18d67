"""What is laid over the document before it is checked: a profile of it, then `--set` arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.topology.compose import compose
from pdctl.topology.nearest import suggest
from pdctl.topology.text import SourceText
from pdctl.topology.tree import Entry, Items, Scalar, Table, Tree, merge

SET_FILE = "--set"
PROFILES_KEY = "profiles"

_PATH = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_BREAK_OR_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def profiles_of(root: Table) -> dict[str, Table]:
    """The profiles that are mappings; the schema speaks about the others."""
    entry = root.entries.get(PROFILES_KEY)
    if entry is None or not isinstance(entry.value, Table):
        return {}
    profiles = entry.value.entries
    return {name: each.value for name, each in profiles.items() if isinstance(each.value, Table)}


def apply_profile(root: Table, name: str) -> Table:
    """Raises `DiagnosticError` where the document has no such profile."""
    profiles = profiles_of(root)
    if name not in profiles:
        entry = root.entries.get(PROFILES_KEY)
        raise DiagnosticError.one(
            "PD119",
            f"the document has no profile `{name}`",
            span=entry.key_span if entry is not None else None,
            path=PROFILES_KEY,
            help=suggest(name, profiles) or "write it under `profiles`, with the keys that it changes",
        )
    merged = merge(root, profiles[name])
    assert isinstance(merged, Table)
    return merged


def apply_sets(root: Table, arguments: Sequence[str]) -> tuple[Table, tuple[Diagnostic, ...]]:
    """Apply every argument that can be applied; the faults of all others come back."""
    faults: list[Diagnostic] = []
    for index, argument in enumerate(arguments):
        try:
            root = _apply_set(root, argument, line=index)
        except DiagnosticError as error:
            faults.extend(error.diagnostics)
    return root, tuple(faults)


def _apply_set(root: Table, argument: str, *, line: int) -> Table:
    path, equals, written = argument.partition("=")
    if not equals or not _PATH.fullmatch(path):
        raise DiagnosticError.one(
            "PD117",
            f"`{argument}` sets nothing",
            help="write `--set key.key=value`, such as `--set decode.instances=3`",
        )
    if _BREAK_OR_CONTROL.search(written):
        raise DiagnosticError.one(
            "PD117", f"the value of `--set {path}` holds a line break or a control character"
        )
    value = _value_of(argument, len(equals) + len(path), line)
    result = _put(root, path.split("."), value, argument)
    assert isinstance(result, Table)
    return result


def _value_of(argument: str, start: int, line: int) -> Tree:
    """Parse what follows `=` as YAML, padded with spaces so that spans come out right."""
    shown = SourceText(file=SET_FILE, text="\n" * line + argument)
    source = SourceText(file=SET_FILE, text="\n" * line + " " * start + argument[start:])
    composed = compose(source)
    faults = [_in_argument(each, shown, line) for each in composed.diagnostics]
    if faults:
        raise DiagnosticError(faults)
    if composed.tree is None:
        return Scalar(value=None, span=shown.span(line, 0, line, len(argument)), is_plain=True)
    return _with_text(composed.tree, argument)


def _in_argument(fault: Diagnostic, shown: SourceText, line: int) -> Diagnostic:
    if fault.span is None:
        return fault
    return replace(fault, span=replace(fault.span, text=shown.lines[line]))


def _with_text(tree: Tree, argument: str) -> Tree:
    """The tree with spans that quote the argument as it was given."""
    span = replace(tree.span, text=argument)
    match tree:
        case Scalar():
            return replace(tree, span=span)
        case Items():
            return replace(tree, span=span, items=tuple(_with_text(item, argument) for item in tree.items))
        case Table():
            entries = {
                name: Entry(
                    key_span=replace(entry.key_span, text=argument), value=_with_text(entry.value, argument)
                )
                for name, entry in tree.entries.items()
            }
            return replace(tree, span=span, entries=entries)


def _put(tree: Tree, path: Sequence[str], value: Tree, argument: str) -> Tree:
    """`tree` with `value` at `path`; mappings that aren't there yet are made."""
    if not path:
        return value
    name, rest = path[0], path[1:]
    key_span = replace(value.span, column=1, length=argument.index("="), text=argument)
    if isinstance(tree, Items):
        return _put_item(tree, name, rest, value, argument)
    if isinstance(tree, Scalar):
        if tree.value is not None:
            raise _leads_nowhere(argument, f"`{name}` can't be set inside `{tree.value}`, which is one value")
        tree = Table(entries={}, span=key_span)
    below = tree.entries.get(name)
    start: Tree = Table(entries={}, span=key_span) if below is None else below.value
    entry = Entry(key_span=key_span, value=_put(start, rest, value, argument))
    return replace(tree, entries={**tree.entries, name: entry})


def _put_item(tree: Items, name: str, rest: Sequence[str], value: Tree, argument: str) -> Tree:
    if not name.isascii() or not name.isdigit() or int(name[:9]) >= len(tree.items):
        raise _leads_nowhere(argument, f"`{name}` is no index of a list of {len(tree.items)}, counted from 0")
    items = list(tree.items)
    items[int(name)] = _put(items[int(name)], rest, value, argument)
    return replace(tree, items=tuple(items))


def _leads_nowhere(argument: str, message: str) -> DiagnosticError:
    span = SourceText(file=SET_FILE, text=argument).span(0, 0, 0, argument.index("="))
    return DiagnosticError.one("PD118", message, span=span)
