"""What is laid over the document before it is checked: a profile of it, then `--set` arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pdctl.diagnostics import Diagnostic, DiagnosticError, Span
from pdctl.topology.compose import compose
from pdctl.topology.nearest import suggest
from pdctl.topology.text import SourceText
from pdctl.topology.tree import Entry, Items, Scalar, Table, Tree, merge

SET_FILE = "--set"
PROFILES_KEY = "profiles"

_PATH = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_INDEX = re.compile(r"[0-9]{1,9}")
_BRACKETED = re.compile(r"\[([0-9]{1,9})\]")  # as jq and Python have it
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
    for line, text in enumerate(arguments):
        try:
            root = _apply_set(root, _Argument(text=text, line=line))
        except DiagnosticError as error:
            faults.extend(error.diagnostics)
    return root, tuple(faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Argument:
    """One `--set` argument. All of them together are shown as a file, a line each."""

    text: str
    line: int  # from 0

    @property
    def path(self) -> str:
        return self.text.partition("=")[0]

    @property
    def path_span(self) -> Span:
        return Span(file=SET_FILE, line=self.line + 1, column=1, length=len(self.path) or 1, text=self.text)

    def fault(self, code: str, message: str, help: str | None = None) -> DiagnosticError:
        return DiagnosticError.one(code, message, span=self.path_span, help=help)


def _apply_set(root: Table, argument: _Argument) -> Table:
    written = argument.text.removeprefix(argument.path)
    if _BREAK_OR_CONTROL.search(argument.text):
        raise argument.fault("PD117", "a `--set` argument holds a line break or a control character")
    if not written or not _PATH.fullmatch(argument.path):
        raise argument.fault("PD117", f"`{argument.text}` sets nothing", help=_form_of_path(argument.path))
    keys = argument.path.split(".")
    if keys[0] == PROFILES_KEY:
        raise argument.fault(
            "PD118",
            "`--set` comes after profiles, and can't change one",
            "set the key that the profile sets, or edit the profile",
        )
    result = _put(root, keys, _value_of(argument), argument)
    assert isinstance(result, Table)
    return result


def _form_of_path(path: str) -> str:
    dotted = _BRACKETED.sub(r".\1", path)
    if dotted != path and _PATH.fullmatch(dotted):
        return f"an index stands between dots, as in `--set {dotted}=…`"
    return "write `--set key.key=value`, such as `--set decode.instances=3`"


def _value_of(argument: _Argument) -> Tree:
    """Parse what follows `=` as YAML, padded with spaces so that spans come out right."""
    start = len(argument.path) + 1
    padded = "\n" * argument.line + " " * start + argument.text[start:]
    composed = compose(SourceText(file=SET_FILE, text=padded))
    if composed.diagnostics:
        raise DiagnosticError(_quoting(each, argument) for each in composed.diagnostics)
    if composed.tree is None:
        return Scalar(value=None, span=argument.path_span, is_plain=True)
    return _with_text(composed.tree, argument.text)


def _quoting(fault: Diagnostic, argument: _Argument) -> Diagnostic:
    return fault if fault.span is None else replace(fault, span=replace(fault.span, text=argument.text))


def _with_text(tree: Tree, text: str) -> Tree:
    """The tree with spans that quote the argument as it was given."""
    span = replace(tree.span, text=text)
    match tree:
        case Scalar():
            return replace(tree, span=span)
        case Items():
            return replace(tree, span=span, items=tuple(_with_text(item, text) for item in tree.items))
        case Table():
            entries = {
                name: Entry(key_span=replace(entry.key_span, text=text), value=_with_text(entry.value, text))
                for name, entry in tree.entries.items()
            }
            return replace(tree, span=span, entries=entries)


def _put(tree: Tree, path: Sequence[str], value: Tree, argument: _Argument) -> Tree:
    """`tree` with `value` at `path`; mappings that aren't there yet are made."""
    if not path:
        return value
    name, rest = path[0], path[1:]
    if isinstance(tree, Items):
        return _put_item(tree, path, value, argument)
    if isinstance(tree, Scalar):
        if tree.value is not None:
            raise argument.fault("PD118", f"`{name}` can't be set inside `{tree.value}`, which is one value")
        tree = Table(entries={}, span=argument.path_span)
    below = tree.entries.get(name)
    start: Tree = Table(entries={}, span=argument.path_span) if below is None else below.value
    entry = Entry(key_span=argument.path_span, value=_put(start, rest, value, argument))
    return replace(tree, entries={**tree.entries, name: entry})


def _put_item(tree: Items, path: Sequence[str], value: Tree, argument: _Argument) -> Tree:
    name, rest = path[0], path[1:]
    index = int(name) if _INDEX.fullmatch(name) else len(tree.items)
    if index >= len(tree.items):
        raise argument.fault("PD118", f"`{name}` is no index of a list of {len(tree.items)}, counted from 0")
    items = list(tree.items)
    items[index] = _put(items[index], rest, value, argument)
    return replace(tree, items=tuple(items))
