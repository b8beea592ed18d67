"""What the YAML parser complains about, in our words and at the place to look at."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.diagnostics import Diagnostic, Span
from pdctl.topology.text import SourceText
from pdctl.topology.yaml_events import YamlParseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    message: str
    help: str | None = None


_TOO_DEEP = "exceeded maximum nesting depth"  # libyaml reads ahead, so its own limit can strike before ours
_OPEN_BRACKET = Said(message="a bracket is not closed", help="close it, or put quotes around the text")
_OPEN_QUOTE = Said(message="a quote is not closed", help="close the quote")
_BARE_REFERENCE = "inside `{ }` or `[ ]`, put quotes around a text that contains `${…}`"
_INDENTATION = Said(
    message="this line doesn't fit the lines above it",
    help="keys of one mapping start in the same column, and a list's `-` too",
)
_SAID: dict[str, Said] = {
    _TOO_DEEP: Said(message="nested too deeply"),
    "mapping values are not allowed in this context": Said(
        message="a `:` where no key can stand",
        help="put quotes around a text that contains `: `; check that the line above is complete",
    ),
    "did not find expected key": _INDENTATION,
    "did not find expected '-' indicator": _INDENTATION,
    "did not find expected <document start>": _INDENTATION,
    "could not find expected ':'": Said(message="a key without `:`", help="write `key: value`"),
    "found unexpected end of stream": _OPEN_QUOTE,
    "did not find expected ',' or ']'": _OPEN_BRACKET,
    "did not find expected ',' or '}'": _OPEN_BRACKET,
    "found character that cannot start any token": Said(
        message="no value begins with this character", help="put quotes around the text"
    ),
    "did not find expected node content": Said(message="a value is expected here"),
    "found unknown escape character": Said(
        message="an unknown escape in a double-quoted text",
        help="write `\\\\` for a backslash, or use single quotes",
    ),
    "block sequence entries are not allowed in this context": Said(
        message="a list can't begin here", help="begin the list on a line of its own"
    ),
}


def syntax_diagnostic(source: SourceText, error: YamlParseError) -> Diagnostic:
    tab = _tab_indentation(source, error.line)
    if tab is not None:
        return Diagnostic(
            code="PD106", message="a tab indents this line", span=tab, help="YAML indents with spaces only"
        )
    said = _SAID.get(error.problem, Said(message=f"this is not YAML: {error.problem}"))
    line, column = _last_place(source, error.line, error.column)
    notes: tuple[str, ...] = ()
    help = said.help
    if error.opened is not None and said in (_OPEN_BRACKET, _OPEN_QUOTE):
        # It is noticed where the text stops making sense; the place to look at is where it began.
        notes = (f"noticed on line {line + 1}, column {column + 1}",)
        line, column = error.opened
        # The brace of `${NAME}` opens a mapping where one is already open.
        help = _BARE_REFERENCE if "${" in source.lines[line] else said.help
    return Diagnostic(
        code="PD112" if error.problem == _TOO_DEEP else "PD105",
        message=said.message,
        span=source.span(line, column, line, column + 1),
        notes=notes,
        help=help,
    )


def _tab_indentation(source: SourceText, line: int) -> Span | None:
    text = source.lines[line] if line < len(source.lines) else ""
    indentation = text[: len(text) - len(text.lstrip())]
    tab = indentation.find("\t")
    return None if tab < 0 else source.span(line, tab, line, len(indentation))


def _last_place(source: SourceText, line: int, column: int) -> tuple[int, int]:
    """The end of the last line with text, for a fault that the parser places behind the end of the file."""
    if line < len(source.lines) and source.lines[line].strip():
        return line, column
    written = [number for number, text in enumerate(source.lines[:line]) if text.strip()]
    return (written[-1], len(source.lines[written[-1]].rstrip())) if written else (0, 0)
