"""YAML to a tree, within bounds: PyYAML's events, one at a time, never its constructors.

Working on events keeps three promises that a loader can't: a duplicate key is seen, what an alias expands to
is weighed before anything expands, and no nesting can exhaust the stack. Anchors, aliases and `<<` are
understood; tags are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pdctl.diagnostics import Diagnostic, Span
from pdctl.topology.scalars import resolve_plain
from pdctl.topology.syntax import syntax_diagnostic
from pdctl.topology.text import SourceText
from pdctl.topology.tree import Entry, Items, Scalar, Table, Tree
from pdctl.topology.yaml_events import EventKind, YamlEvent, YamlParseError, parse_events

MAX_DEPTH = 32
MAX_ALIASED_VALUES = 10_000  # values that aliases may add to a document

_MERGE_KEY = "<<"
_PLAIN_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "!")


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """What a text says. `tree` is None when there is nothing to go on with: an empty text, or a fault."""

    tree: Tree | None
    diagnostics: tuple[Diagnostic, ...]


def compose(source: SourceText) -> Composed:
    composer = _Composer(source)
    try:
        composer.read(parse_events(source.text))
    except YamlParseError as error:
        composer.faults.append(syntax_diagnostic(source, error))
        return Composed(tree=None, diagnostics=tuple(composer.faults))
    except _GiveUp:
        pass  # a tree is there only if it was complete before, as with a second document
    return Composed(tree=composer.root, diagnostics=tuple(composer.faults))


class _GiveUp(Exception):
    """The last fault found makes everything after it meaningless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sized:
    """A finished part of the tree with what it weighs when an alias repeats it."""

    tree: Tree
    num_values: int = 1
    height: int = 1


@dataclass(slots=True, kw_only=True)
class _Open:
    """A collection whose end hasn't come yet."""

    span: Span
    anchor: str | None
    num_values: int = 1
    height: int = 1

    def weigh(self, part: _Sized) -> None:
        self.num_values += part.num_values
        self.height = max(self.height, part.height + 1)


@dataclass(slots=True, kw_only=True)
class _OpenItems(_Open):
    items: list[Tree] = field(default_factory=list[Tree])

    def close(self) -> Tree:
        return Items(items=tuple(self.items), span=self.span)


@dataclass(slots=True, kw_only=True)
class _OpenTable(_Open):
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    merged: list[Table] = field(default_factory=list[Table])
    expects_key: bool = True
    key: str | None = None  # None while a value is awaited: that value belongs to a refused key or to `<<`
    is_merge: bool = False
    key_span: Span | None = None

    def close(self) -> Tree:
        """Own entries win over merged ones, and earlier merges over later ones."""
        entries = dict(self.entries)
        for table in self.merged:
            for name, entry in table.entries.items():
                entries.setdefault(name, entry)
        return Table(entries=entries, span=self.span)


class _Composer:
    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.faults: list[Diagnostic] = []
        self.root: Tree | None = None
        self._open: list[_OpenItems | _OpenTable] = []
        self._anchors: dict[str, _Sized] = {}
        self._num_aliased = 0
        self._num_documents = 0

    def read(self, events: Iterator[YamlEvent]) -> None:
        for event in events:
            match event.kind:
                case EventKind.SCALAR:
                    self._scalar(event)
                case EventKind.TABLE:
                    self._start(event, _OpenTable(span=self._span(event), anchor=event.anchor))
                case EventKind.ITEMS:
                    self._start(event, _OpenItems(span=self._span(event), anchor=event.anchor))
                case EventKind.END:
                    self._end()
                case EventKind.ALIAS:
                    self._alias(event)
                case EventKind.DOCUMENT:
                    self._document(event)

    def _document(self, event: YamlEvent) -> None:
        self._num_documents += 1
        if self._num_documents > 1:
            self._fault(
                "PD107",
                "a second document begins here",
                self._span(event),
                help="keep one topology per file; remove the `---`",
                is_final=True,
            )

    def _scalar(self, event: YamlEvent) -> None:
        self._check_tag(event)
        value = resolve_plain(event.value) if event.is_plain else event.value
        part = _Sized(tree=Scalar(value=value, span=self._span(event), is_plain=event.is_plain))
        self._finish(part, event.anchor)

    def _start(self, event: YamlEvent, opened: _OpenItems | _OpenTable) -> None:
        self._check_tag(event)
        parent = self._open[-1] if self._open else None
        if isinstance(parent, _OpenTable) and parent.expects_key:
            self._refuse_key(parent, opened.span, "a key must be one word, not a list or a mapping", None)
            # The collection is read as the key; its value follows and is dropped with it.
        self._open.append(opened)
        if len(self._open) > MAX_DEPTH:
            self._too_deep(opened.span)

    def _end(self) -> None:
        opened = self._open.pop()
        part = _Sized(tree=opened.close(), num_values=opened.num_values, height=opened.height)
        parent = self._open[-1] if self._open else None
        if isinstance(parent, _OpenTable) and parent.expects_key:
            parent.expects_key = False  # it was a key; `_start` has refused it
            self._anchor(opened.anchor, part)
            return
        self._finish(part, opened.anchor)

    def _alias(self, event: YamlEvent) -> None:
        name, span = event.anchor or "", self._span(event)
        if any(opened.anchor == name for opened in self._open):
            self._fault(
                "PD111", f"`*{name}` stands inside `&{name}`: it would contain itself", span, is_final=True
            )
        part = self._anchors.get(name)
        if part is None:
            self._fault("PD111", f"no anchor `&{name}` above this alias", span, is_final=True)
            return
        self._num_aliased += part.num_values
        if self._num_aliased > MAX_ALIASED_VALUES:
            self._fault(
                "PD111",
                f"aliases would add more than {MAX_ALIASED_VALUES:,} values to the document",
                span,
                notes=("nothing was expanded",),
                is_final=True,
            )
        if len(self._open) + part.height > MAX_DEPTH:
            self._too_deep(span)
        self._finish(replace(part, tree=replace(part.tree, span=span)), None)

    def _finish(self, part: _Sized, anchor: str | None) -> None:
        """Put a finished part where it belongs: the root, a list, a key, or a key's value."""
        self._anchor(anchor, part)
        if not self._open:
            self.root = part.tree
            return
        parent = self._open[-1]
        parent.weigh(part)
        if isinstance(parent, _OpenItems):
            parent.items.append(part.tree)
        elif parent.expects_key:
            self._key(parent, part.tree)
            parent.expects_key = False
        else:
            self._value(parent, part.tree)
            parent.expects_key, parent.key = True, None

    def _anchor(self, name: str | None, part: _Sized) -> None:
        if name is not None:
            self._anchors[name] = part

    def _key(self, table: _OpenTable, tree: Tree) -> None:
        table.key_span = tree.span
        if not isinstance(tree, Scalar) or not isinstance(tree.value, str):
            shown = tree.span.text[tree.span.column - 1 :][: tree.span.length]
            self._refuse_key(table, tree.span, f"the key `{shown}` is not text", f'write `"{shown}"`')
        elif tree.value == _MERGE_KEY and tree.is_plain:
            table.is_merge = True
        elif tree.value in table.entries:
            first = table.entries[tree.value].key_span
            self._fault(
                "PD110",
                f"`{tree.value}` stands twice in one mapping",
                tree.span,
                notes=(f"first on line {first.line}, column {first.column}",),
                help="keep one of them",
            )
        else:
            table.key = tree.value

    def _value(self, table: _OpenTable, tree: Tree) -> None:
        if table.is_merge:
            table.is_merge = False
            sources = tree.items if isinstance(tree, Items) else (tree,)
            table.merged += [each for each in sources if isinstance(each, Table)]
            if not all(isinstance(each, Table) for each in sources):
                self._fault("PD111", "`<<` merges mappings, and this is none", tree.span)
        elif table.key is not None and table.key_span is not None:
            table.entries[table.key] = Entry(key_span=table.key_span, value=tree)

    def _refuse_key(self, table: _OpenTable, span: Span, message: str, help: str | None) -> None:
        table.key = None
        self._fault("PD113", message, span, help=help)

    def _check_tag(self, event: YamlEvent) -> None:
        if event.tag is not None and event.tag not in _PLAIN_TAGS:
            shown = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._fault(
                "PD114", f"the tag `{shown}` has no meaning here", self._span(event), help="remove the tag"
            )

    def _too_deep(self, span: Span) -> None:
        self._fault("PD112", f"nested deeper than {MAX_DEPTH} levels", span, is_final=True)

    def _span(self, event: YamlEvent) -> Span:
        return self.source.span(event.line, event.column, event.end_line, event.end_column)

    def _fault(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        notes: tuple[str, ...] = (),
        help: str | None = None,
        is_final: bool = False,
    ) -> None:
        if not any(fault.span == span for fault in self.faults):  # one place, one fault
            self.faults.append(Diagnostic(code=code, message=message, span=span, notes=notes, help=help))
        if is_final:
            raise _GiveUp
