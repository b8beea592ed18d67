"""Load a topology: text → tree → overlays → environment → ranges of hosts → schema → dataclasses.

All faults of a document come back together, as far as its syntax lets it be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pdctl.diagnostics import Diagnostic, DiagnosticError, has_errors
from pdctl.topology.compose import compose
from pdctl.topology.decode import decode
from pdctl.topology.environment import EnvironmentUse, Substituted, substitute
from pdctl.topology.host_ranges import expand_hosts
from pdctl.topology.model import Topology
from pdctl.topology.overlay import apply_profile, apply_sets, profiles_of
from pdctl.topology.schema import check_schema
from pdctl.topology.text import SourceText, decode_source, read_source
from pdctl.topology.tree import Flat, Scalar, Table, Tree, Value, flatten


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """`topology` is None exactly when a diagnostic is an error."""

    topology: Topology | None
    diagnostics: tuple[Diagnostic, ...] = ()
    environment: tuple[EnvironmentUse, ...] = ()
    document: Value = None  # the plain values of `topology`

    def require(self) -> Topology:
        if self.topology is None:
            raise DiagnosticError(self.diagnostics)
        return self.topology


def load(
    path: str, *, environ: Mapping[str, str], profile: str | None = None, sets: Sequence[str] = ()
) -> Loaded:
    """Load the file at `path`, or standard input for `-`."""
    try:
        source = read_source(path)
    except DiagnosticError as error:
        return Loaded(topology=None, diagnostics=error.diagnostics)
    return _load(source, environ=environ, profile=profile, sets=sets)


def load_text(
    text: str | bytes,
    *,
    file: str = "<text>",
    environ: Mapping[str, str] | None = None,
    profile: str | None = None,
    sets: Sequence[str] = (),
) -> Loaded:
    """Load a document that is already here; `file` is what spans call it."""
    try:
        source = decode_source(text.encode() if isinstance(text, str) else text, file)
    except DiagnosticError as error:
        return Loaded(topology=None, diagnostics=error.diagnostics)
    return _load(source, environ=environ or {}, profile=profile, sets=sets)


def _load(
    source: SourceText, *, environ: Mapping[str, str], profile: str | None, sets: Sequence[str]
) -> Loaded:
    composed = compose(source)
    faults = list(composed.diagnostics)
    root = _root(source, composed.tree, faults)
    if root is None:
        return Loaded(topology=None, diagnostics=tuple(faults))
    try:
        chosen = root if profile is None else apply_profile(root, profile)
    except DiagnosticError as error:
        faults += error.diagnostics
        chosen = root  # its own faults are worth saying too
    overlaid, set_faults = apply_sets(chosen, sets)
    substituted = substitute(_without_profiles(overlaid), environ)
    expanded = expand_hosts(substituted.tree)
    faults += [*set_faults, *substituted.diagnostics, *expanded.diagnostics]
    # As written: a fault in a range of a hundred hosts is one fault.
    found = [*_schema_faults(substituted, flatten(substituted.tree)), *_profile_faults(root, environ)]
    diagnostics = _in_order([*faults, *_elsewhere(found, faults)])
    if has_errors(diagnostics):
        return Loaded(topology=None, diagnostics=diagnostics, environment=substituted.uses)
    flat = flatten(expanded.tree)
    return Loaded(
        topology=decode(flat.value, flat.source),
        diagnostics=diagnostics,
        environment=substituted.uses,
        document=flat.value,
    )


def _root(source: SourceText, tree: Tree | None, faults: list[Diagnostic]) -> Table | None:
    """The document's mapping; None after noting what stands in its place."""
    if isinstance(tree, Table):
        return tree
    if tree is None or (isinstance(tree, Scalar) and tree.value is None):
        if not faults:
            faults.append(_empty(source))
    else:
        found = "one value" if isinstance(tree, Scalar) else "a list"
        faults.append(
            Diagnostic(
                code="PD109",
                message=f"a topology is a mapping of keys, found {found}",
                span=tree.span,
                help="begin with `schema: pdctl/v1`",
            )
        )
    return None


def _empty(source: SourceText) -> Diagnostic:
    has_text = bool(source.text.strip())
    return Diagnostic(
        code="PD108",
        message=f"`{source.file}` holds only comments" if has_text else f"`{source.file}` is empty",
        span=source.span(0, 0, 0, 1) if has_text else None,
        help="begin with `schema: pdctl/v1`",
    )


def _without_profiles(root: Table) -> Table:
    """Profiles have been applied; what is left of them is checked as written, on its own."""
    return Table(
        entries={name: entry for name, entry in root.entries.items() if name != "profiles"}, span=root.span
    )


def _schema_faults(substituted: Substituted, flat: Flat, *, partial: bool = False) -> list[Diagnostic]:
    """What a value with an unset variable would be isn't known, so nothing is said about it."""
    found = check_schema(flat, partial=partial)
    return [each for each in found if each.span is None or each.span not in substituted.unresolved]


def _profile_faults(root: Table, environ: Mapping[str, str]) -> Iterable[Diagnostic]:
    """The faults that each profile brings, chosen or not, and those of `profiles` itself."""
    entry = root.entries.get("profiles")
    if entry is None:
        return
    alone = flatten(Table(entries={"profiles": entry}, span=root.span))
    yield from check_schema(alone, partial=True)
    for table in profiles_of(root).values():
        substituted = substitute(table, environ)
        yield from _schema_faults(substituted, flatten(substituted.tree), partial=True)


def _elsewhere(found: Iterable[Diagnostic], reported: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Each place once: what follows from a fault that is already reported there says nothing new."""
    taken = {_place(each) for each in reported if each.span is not None}
    kept: list[Diagnostic] = []
    for each in found:
        if each.span is None or _place(each) not in taken:
            kept.append(each)
    return kept


def _place(diagnostic: Diagnostic) -> tuple[str, int, int] | None:
    span = diagnostic.span
    return None if span is None else (span.file, span.line, span.column)


def _in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    unique = dict.fromkeys(diagnostics)
    return tuple(sorted(unique, key=lambda each: _place(each) or ("", 0, 0)))
