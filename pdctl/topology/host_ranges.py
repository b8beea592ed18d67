"""Ranges of nodes, such as `gpu[01-12]`: an entry of `cluster.nodes` for each, a name in `on` for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pdctl.diagnostics import Diagnostic
from pdctl.hostlist import is_folded, unfold
from pdctl.topology.source import DocumentPath, dotted
from pdctl.topology.tree import Entry, Items, Scalar, Table, Tree

MAX_NODES = 10_000  # of a document; each is checked on its own
_NAME: DocumentPath = ("name",)
_USES: tuple[DocumentPath, ...] = (("prefill", "on"), ("decode", "on"))
_FOLLOWING: tuple[DocumentPath, ...] = (("address",), ("ssh", "host"))  # these count along with the name


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """Every node of a range keeps the places of the entry that it comes from."""

    tree: Tree
    diagnostics: tuple[Diagnostic, ...]


def expand_hosts(root: Tree) -> Expanded:
    faults: list[Diagnostic] = []
    nodes = _at(root, ("cluster", "nodes"))
    if isinstance(nodes, Items):
        hosts: list[Tree] = []
        for index, entry in enumerate(nodes.items):
            hosts += _hosts_of(entry, index, faults, MAX_NODES - len(hosts))
        root = _with(root, ("cluster", "nodes"), replace(nodes, items=tuple(hosts)))
    for path in _USES:
        names = _at(root, path)
        if isinstance(names, Items):
            named = [
                each for index, name in enumerate(names.items) for each in _named(name, path, index, faults)
            ]
            root = _with(root, path, replace(names, items=tuple(named)))
    return Expanded(tree=root, diagnostics=tuple(faults))


def _named(name: Tree, path: DocumentPath, index: int, faults: list[Diagnostic]) -> Sequence[Tree]:
    """The names of one entry of `on`; the entry itself where it is no range, or a faulty one."""
    try:
        names = _unfolded(name, (*path, index))
    except _RangeFault as fault:
        faults.append(fault.diagnostic)
        return []
    if names is None:
        return [name]
    assert isinstance(name, Scalar)
    return [replace(name, value=each) for each in names]


def _hosts_of(entry: Tree, index: int, faults: list[Diagnostic], num_left: int) -> Sequence[Tree]:
    """The nodes of one entry; the entry itself where it is no range, or a faulty one."""
    try:
        place: DocumentPath = ("cluster", "nodes", index)
        names = _unfolded(_at(entry, _NAME), (*place, *_NAME))
        others = {path: _unfolded(_at(entry, path), (*place, *path)) for path in _FOLLOWING}
        if names is None and not any(others.values()):
            return [entry]
        count = _check(entry, place, names, others, num_left)
    except _RangeFault as fault:
        faults.append(fault.diagnostic)
        return [entry]
    columns = {path: found for path, found in {_NAME: names, **others}.items() if found is not None}
    return [_member(entry, columns, number) for number in range(count)]


class _RangeFault(Exception):
    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


def _unfolded(scalar: Tree | None, place: DocumentPath) -> tuple[str, ...] | None:
    """What a value with a range stands for; None for any other value."""
    if not isinstance(scalar, Scalar) or not isinstance(scalar.value, str) or not is_folded(scalar.value):
        return None
    try:
        return unfold(scalar.value)
    except ValueError as error:
        raise _fault(scalar, place, str(error), _hint(scalar.value)) from error


def _check(
    entry: Tree,
    place: DocumentPath,
    names: tuple[str, ...] | None,
    others: dict[DocumentPath, tuple[str, ...] | None],
    num_left: int,
) -> int:
    """How many nodes the entry stands for. Raises `_RangeFault` where its parts disagree."""
    num_names = 1 if names is None else len(names)
    for path, found in others.items():
        scalar = _at(entry, path)
        if found is None or not isinstance(scalar, Scalar) or len(found) == num_names:
            continue
        message = f"`{dotted(path)}` stands for {len(found)}, `name` for {num_names}"
        raise _fault(scalar, (*place, *path), message, "give both ranges the same length")
    if num_names > num_left:
        scalar = _at(entry, _NAME)
        assert isinstance(scalar, Scalar)
        message = f"the ranges stand for more than {MAX_NODES:,} nodes"
        raise _fault(scalar, (*place, *_NAME), message, "look for a mistyped number")
    return num_names


def _fault(scalar: Scalar, place: DocumentPath, message: str, help: str) -> _RangeFault:
    return _RangeFault(
        Diagnostic(code="PD513", message=message, span=scalar.span, path=dotted(place), help=help)
    )


def _hint(text: str) -> str:
    if text.startswith("[") and ":" in text:
        return "write an IPv6 address without brackets"
    return "write ranges like `gpu[01-12]` or `gpu[1,3,7-9]`"


def _member(entry: Tree, columns: dict[DocumentPath, tuple[str, ...]], number: int) -> Tree:
    for path, values in columns.items():
        scalar = _at(entry, path)
        assert isinstance(scalar, Scalar)
        entry = _with(entry, path, replace(scalar, value=values[number]))
    return entry


def _at(tree: Tree, path: DocumentPath) -> Tree | None:
    for key in path:
        if not isinstance(tree, Table) or key not in tree.entries:
            return None
        tree = tree.entries[str(key)].value
    return tree


def _with(tree: Tree, path: DocumentPath, value: Tree) -> Tree:
    """The tree with another value at a path that it has."""
    if not path:
        return value
    assert isinstance(tree, Table)
    key, *rest = path
    entry = tree.entries[str(key)]
    changed = Entry(key_span=entry.key_span, value=_with(entry.value, tuple(rest), value))
    return replace(tree, entries={**tree.entries, str(key): changed})
