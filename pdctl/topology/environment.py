"""`${VAR}` and `${VAR:-default}` in values, replaced once, when the document is loaded.

`$${` writes a plain `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pdctl.diagnostics import Diagnostic, Span
from pdctl.topology.nearest import nearest
from pdctl.topology.scalars import resolve_plain
from pdctl.topology.tree import Entry, Items, Scalar, Table, Tree, is_private

_REFERENCE = re.compile(
    r"(?P<escaped>\$\$\{)"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}"
    r"|(?P<malformed>\$\{[^}]*\}?)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentUse:
    """One reference that a document makes. `value` is None where the variable is unset."""

    name: str
    value: str | None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Substituted:
    tree: Tree
    uses: tuple[EnvironmentUse, ...]
    diagnostics: tuple[Diagnostic, ...]
    unresolved: frozenset[Span]  # values that keep a reference as it was written


def substitute(tree: Tree, environ: Mapping[str, str]) -> Substituted:
    """Replace every reference. Without quotes, the outcome gives the type: `port: ${PORT}` is a number."""
    pending = _Pass(environ=environ)
    result = pending.visit(tree)
    return Substituted(
        tree=result,
        uses=tuple(pending.uses),
        diagnostics=tuple(pending.faults),
        unresolved=frozenset(pending.unresolved),
    )


@dataclass(slots=True, kw_only=True)
class _Pass:
    environ: Mapping[str, str]
    uses: list[EnvironmentUse] = field(default_factory=list[EnvironmentUse])
    faults: list[Diagnostic] = field(default_factory=list[Diagnostic])
    unresolved: set[Span] = field(default_factory=set[Span])

    def visit(self, tree: Tree) -> Tree:
        match tree:
            case Scalar():
                return self._scalar(tree)
            case Items():
                return replace(tree, items=tuple(self.visit(item) for item in tree.items))
            case Table():
                entries = {name: self._entry(name, entry) for name, entry in tree.entries.items()}
                return replace(tree, entries=entries)

    def _entry(self, name: str, entry: Entry) -> Entry:
        return entry if is_private(name) else replace(entry, value=self.visit(entry.value))

    def _scalar(self, scalar: Scalar) -> Scalar:
        if not isinstance(scalar.value, str) or "${" not in scalar.value:
            return scalar
        num_faults = len(self.faults)
        text = _REFERENCE.sub(lambda found: self._replacement(found, scalar), scalar.value)
        if len(self.faults) > num_faults:
            self.unresolved.add(scalar.span)
            return scalar
        return replace(scalar, value=resolve_plain(text) if scalar.is_plain else text)

    def _replacement(self, found: re.Match[str], scalar: Scalar) -> str:
        if found["escaped"] is not None:
            return "${"
        span = _span_within(scalar, found)
        name, default = found["name"], found["default"]
        if name is None:
            self.faults.append(_malformed(found.group(), span))
            return found.group()
        value = self.environ.get(name)
        self.uses.append(EnvironmentUse(name=name, value=value, span=span))
        if default is not None and not value:  # `:-` stands in for empty as well, as in a shell
            return default
        if value is None:
            self.faults.append(_unset(name, span, self.environ))
            return found.group()
        return value


def _span_within(scalar: Scalar, found: re.Match[str]) -> Span:
    """The reference itself where it stands as written in the value's first line, else the whole value."""
    span = scalar.span
    column = span.text.find(found.group(), span.column - 1)
    return span if column < 0 else replace(span, column=column + 1, length=len(found.group()))


def _unset(name: str, span: Span, environ: Mapping[str, str]) -> Diagnostic:
    near = nearest(name, environ)
    hint = f"export {name}, or give a default: `${{{name}:-…}}`"
    return Diagnostic(
        code="PD115",
        message=f"the environment variable `{name}` is not set",
        span=span,
        help=f"{hint}; `{near}` is set" if near is not None else hint,
    )


def _malformed(text: str, span: Span) -> Diagnostic:
    return Diagnostic(
        code="PD116",
        message=f"`{text}` is no reference to an environment variable",
        span=span,
        help="write `${NAME}` or `${NAME:-default}`; `$${` stands for a plain `${`",
    )
