"""What checks find, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pdctl.alike import filled, masked
from pdctl.diagnostics import Diagnostic, Severity
from pdctl.hostlist import fold


class Standing(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"  # not asked, or not answerable; the text says why


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check says of one node. Where it is a fault, `code` has a page, and `text` stands alone."""

    check: str
    node: str
    standing: Standing
    text: str
    code: str | None = None
    notes: tuple[str, ...] = ()
    help: str | None = None
    names: tuple[str, ...] = ()  # in these texts, by which findings of alike nodes differ


@dataclass(frozen=True, slots=True)
class Topic:
    """What a check is about, in one word or two; it makes the check's findings."""

    name: str

    def ok(self, node: str, text: str) -> Finding:
        return Finding(check=self.name, node=node, standing=Standing.OK, text=text)

    def skipped(self, node: str, why: str) -> Finding:
        return Finding(check=self.name, node=node, standing=Standing.SKIPPED, text=why)

    def warning(
        self, node: str, code: str, text: str, *, notes: tuple[str, ...] = (), help: str | None = None
    ) -> Finding:
        return Finding(
            check=self.name,
            node=node,
            standing=Standing.WARNING,
            text=text,
            code=code,
            notes=notes,
            help=help,
        )

    def error(
        self, node: str, code: str, text: str, *, notes: tuple[str, ...] = (), help: str | None = None
    ) -> Finding:
        return replace(self.warning(node, code, text, notes=notes, help=help), standing=Standing.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One finding that all of these nodes share."""

    check: str
    standing: Standing
    nodes: tuple[str, ...]
    text: str
    code: str | None = None
    notes: tuple[str, ...] = ()
    help: str | None = None

    @property
    def is_fault(self) -> bool:
        return self.standing in (Standing.WARNING, Standing.ERROR)

    def diagnostic(self) -> Diagnostic:
        """Of a fault: the same words as every verb shows faults in."""
        assert self.code is not None, "faults have codes"
        return Diagnostic(
            code=self.code,
            message=f"on {fold(self.nodes)}: {self.text}",
            severity=Severity(self.standing.value),
            notes=self.notes,
            help=self.help,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """Verdicts in the order of the checks."""

    deployment: str
    nodes: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    elapsed_s: float

    @property
    def faults(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.is_fault)

    @property
    def has_errors(self) -> bool:
        return any(verdict.standing is Standing.ERROR for verdict in self.verdicts)


def folded(findings: tuple[Finding, ...]) -> tuple[Verdict, ...]:
    """Findings that differ in nothing but names become one verdict, at the place of the first."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for each in findings:
        texts = tuple(masked(text, each.names) for text in (each.text, *each.notes, each.help or ""))
        groups.setdefault((each.check, each.standing, each.code, len(each.names), *texts), []).append(each)
    return tuple(_verdict(group) for group in groups.values())


def _verdict(group: Sequence[Finding]) -> Verdict:
    first = group[0]

    def told(text: str) -> str:
        return filled(masked(text, first.names), [each.names for each in group])

    return Verdict(
        check=first.check,
        standing=first.standing,
        nodes=tuple(dict.fromkeys(each.node for each in group)),
        text=told(first.text),
        code=first.code,
        notes=tuple(map(told, first.notes)),
        help=None if first.help is None else told(first.help),
    )
