"""What a user can fix, as values: found anywhere, collected, shown together by a view.

Codes: PD1xx document, PD2xx shape, PD3xx pairing, PD4xx placement and ports, PD5xx executor and cluster,
PD6xx lifecycle, PD7xx doctor. Each has a page in `pdctl/explanations/`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A place in a text file. Lines and columns count from 1; `text` is the whole line, for the view."""

    file: str
    line: int
    column: int
    length: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Lines that belong to a diagnostic, such as the end of a failing process's output."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One fault. `message` is lower case without a full stop and stands alone; the fix goes into `help`."""

    code: str
    message: str
    severity: Severity = Severity.ERROR
    span: Span | None = None
    label: str | None = None  # said beside the marked text
    path: str | None = None  # where in the document: `prefill.parallel.tp`
    notes: tuple[str, ...] = ()  # facts: what the other side says, what would happen
    help: str | None = None
    excerpts: tuple[Excerpt, ...] = ()
    names: tuple[str, ...] = ()  # in its texts, by which alike ones differ: of processes, nodes, …


class DiagnosticError(Exception):
    """Carries one or more diagnostics, at least one an error, to whoever shows them."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("; ".join(f"{each.code}: {each.message}" for each in self.diagnostics))

    @classmethod
    def one(
        cls,
        code: str,
        message: str,
        *,
        span: Span | None = None,
        path: str | None = None,
        notes: tuple[str, ...] = (),
        help: str | None = None,
        excerpts: tuple[Excerpt, ...] = (),
        names: tuple[str, ...] = (),
    ) -> DiagnosticError:
        return cls(
            [
                Diagnostic(
                    code=code,
                    message=message,
                    span=span,
                    path=path,
                    notes=notes,
                    help=help,
                    excerpts=excerpts,
                    names=names,
                )
            ]
        )


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(each.severity is Severity.ERROR for each in diagnostics)
