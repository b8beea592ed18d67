"""From bytes to text: read a document within its bounds, and name places in it."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pdctl.diagnostics import Diagnostic, DiagnosticError, Span

MAX_DOCUMENT_BYTES = 1 << 20  # a topology of 10,000 hosts with addresses fits
STDIN = "-"

_LINE_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")  # as YAML counts lines
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, kw_only=True)
class SourceText:
    """The text of one file, with its lines."""

    file: str
    text: str

    @cached_property
    def lines(self) -> tuple[str, ...]:
        return tuple(_LINE_BREAK.split(self.text))

    def span(self, line: int, column: int, end_line: int, end_column: int) -> Span:
        """Lines and columns count from 0, the end is exclusive. Of several lines, the first is marked."""
        text = self.lines[line] if line < len(self.lines) else ""
        end = end_column if end_line == line else len(text.rstrip())
        return Span(file=self.file, line=line + 1, column=column + 1, length=max(1, end - column), text=text)

    def span_at(self, offset: int, length: int = 1) -> Span:
        """The place `offset` characters into the text."""
        before = _LINE_BREAK.split(self.text[:offset])
        line, column = len(before) - 1, len(before[-1])
        return self.span(line, column, line, column + length)


def read_source(path: str) -> SourceText:
    """Read a file, or standard input for `-`; raises `DiagnosticError`."""
    return decode_source(_read_bytes(path), "<stdin>" if path == STDIN else path)


def decode_source(content: bytes, file: str) -> SourceText:
    if len(content) > MAX_DOCUMENT_BYTES:
        raise _too_large(file)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(content, file, error) from error
    source = SourceText(file=file, text=text.removeprefix(_BYTE_ORDER_MARK))
    faults = [_control_character(source, found) for found in _CONTROL.finditer(source.text)]
    if faults:
        raise DiagnosticError(_one_per_line(faults))
    return source


def _read_bytes(path: str) -> bytes:
    """At most one byte more than the limit, so that an endless pipe ends."""
    try:
        if path == STDIN:
            return sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1)
        with Path(path).open("rb") as stream:
            return stream.read(MAX_DOCUMENT_BYTES + 1)
    except FileNotFoundError as error:
        raise DiagnosticError.one("PD101", f"no file `{path}`", help="give the path of a topology") from error
    except IsADirectoryError as error:
        raise DiagnosticError.one(
            "PD101", f"`{path}` is a directory", help="name one file: a topology is one document"
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DiagnosticError.one("PD101", f"cannot read `{path}`: {reason.lower()}") from error


def _too_large(file: str) -> DiagnosticError:
    return DiagnosticError.one(
        "PD102",
        f"`{file}` is larger than {MAX_DOCUMENT_BYTES:,} bytes",
        notes=("the file was not parsed",),
        help="is this the file you meant? a topology of a thousand nodes takes a tenth of that",
    )


def _not_utf8(content: bytes, file: str, error: UnicodeDecodeError) -> DiagnosticError:
    before = SourceText(file=file, text=content[: error.start].decode("utf-8").removeprefix(_BYTE_ORDER_MARK))
    rest = re.split(rb"[\r\n]", content[error.start :], maxsplit=1)[0].decode("utf-8", errors="replace")
    line = len(before.lines) - 1
    shown = SourceText(file=file, text=before.text + rest)
    is_utf16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    column = len(before.lines[-1])
    return DiagnosticError.one(
        "PD103",
        f"byte 0x{content[error.start]:02x} at offset {error.start} is not UTF-8",
        span=shown.span(line, column, line, column + 1),
        help="the file begins like UTF-16: save it as UTF-8" if is_utf16 else "save the file as UTF-8",
    )


def _control_character(source: SourceText, found: re.Match[str]) -> Diagnostic:
    name = "a NUL character" if found.group() == "\0" else f"the control character U+{ord(found.group()):04X}"
    return Diagnostic(
        code="PD104",
        message=f"{name} in the text",
        span=source.span_at(found.start()),
        help="remove it; in a quoted text write it as an escape, such as `\\x1b`",
    )


def _one_per_line(faults: list[Diagnostic]) -> list[Diagnostic]:
    """A binary file has thousands: its first ten lines say enough."""
    first = {fault.span.line: fault for fault in reversed(faults) if fault.span is not None}
    return [first[line] for line in sorted(first)][:10]
