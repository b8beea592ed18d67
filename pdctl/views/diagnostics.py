"""Diagnostics as rustc shows them: the place, the fault underlined, the facts, and apart from them a hint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.alike import folded
from pdctl.diagnostics import Diagnostic, Excerpt, Severity, Span
from pdctl.views.canvas import Canvas, Style
from pdctl.views.quantities import counted
from pdctl.views.text import TAB_CELLS, display_width, fold, is_control, printable, shorten, wrap

MAX_SOURCE_CELLS = 140  # of a quoted line where the canvas has no width of its own
_SEVERITY_STYLES = {Severity.ERROR: Style.ERROR, Severity.WARNING: Style.WARNING}


def report_lines(diagnostics: Sequence[Diagnostic], canvas: Canvas) -> Iterator[str]:
    """Every diagnostic, alike ones as one, an empty line between two; then how many, and in which file."""
    diagnostics = folded(diagnostics)
    for number, diagnostic in enumerate(diagnostics):
        if number:
            yield ""
        yield from diagnostic_lines(diagnostic, canvas)
    files = (each.span.file for each in diagnostics if each.span)
    file = next((file for file in files if not file.startswith("--")), None)  # a span may be in `--set`
    if file is not None or len(diagnostics) > 1:
        yield ""
        yield summary(diagnostics) + ("" if file is None else f" in {printable(file)}")


def summary(diagnostics: Sequence[Diagnostic]) -> str:
    """`2 errors, 1 warning`."""
    counts = [
        counted(number, severity.value)
        for severity in Severity
        if (number := sum(each.severity is severity for each in diagnostics))
    ]
    return ", ".join(counts)


def diagnostic_lines(diagnostic: Diagnostic, canvas: Canvas) -> Iterator[str]:
    """Lines of one diagnostic."""
    gutter = len(str(diagnostic.span.line)) if diagnostic.span else 1
    yield from _heading(diagnostic, canvas)
    yield from _place(diagnostic, gutter, canvas)
    yield from _notes(diagnostic.notes, gutter, canvas, has_source=diagnostic.span is not None)
    for excerpt in diagnostic.excerpts:
        yield ""
        yield from excerpt_lines(excerpt, canvas)
    if diagnostic.help:
        yield ""
        yield from hint_lines(diagnostic.help, canvas)


def hint_lines(text: str, canvas: Canvas) -> Iterator[str]:
    """`hint: …`; further lines of `text` stand below the first, as they are."""
    first, *others = text.splitlines() or [""]
    for number, line in enumerate(wrap(f"hint: {printable(first)}", canvas.width, rest=" " * 6)):
        yield canvas.paint("hint:", Style.MARK) + line.removeprefix("hint:") if number == 0 else line
    for other in others:
        yield f"      {printable(other)}".rstrip()


def excerpt_lines(excerpt: Excerpt, canvas: Canvas) -> Iterator[str]:
    """Lines of another program behind a bar, so that it's plain where they begin and end."""
    yield f"  {printable(excerpt.title)}:"
    width = None if canvas.width is None else max(canvas.width - 4, 1)
    for line in excerpt.lines:
        for piece in fold(printable(line), width):
            yield f"  {canvas.paint(canvas.bar, Style.GUTTER)} {piece}".rstrip()


def _heading(diagnostic: Diagnostic, canvas: Canvas) -> Iterator[str]:
    label = f"{diagnostic.severity.value}[{diagnostic.code}]:"
    first, *others = wrap(f"{label} {printable(diagnostic.message)}", canvas.width, rest="    ")
    yield canvas.paint(label, _SEVERITY_STYLES[diagnostic.severity]) + canvas.paint(
        first.removeprefix(label), Style.STRONG
    )
    for line in others:
        yield canvas.paint(line, Style.STRONG)


def _place(diagnostic: Diagnostic, gutter: int, canvas: Canvas) -> Iterator[str]:
    span = diagnostic.span
    arrow = " " * gutter + canvas.paint("-->", Style.GUTTER)
    if span is None:
        if diagnostic.path:
            yield f"{arrow} {printable(diagnostic.path)}"
        return
    yield f"{arrow} {printable(span.file)}:{span.line}:{span.column}"
    yield _margin("", gutter, canvas)
    source, offset, num_cells = _marked(span, canvas, gutter)
    yield f"{_margin(str(span.line), gutter, canvas)} {source}".rstrip()
    carets = canvas.paint("^" * num_cells, _SEVERITY_STYLES[diagnostic.severity])
    label = f" {printable(diagnostic.label)}" if diagnostic.label else ""
    yield f"{_margin('', gutter, canvas)} {' ' * offset}{carets}{label}"


def _notes(notes: Sequence[str], gutter: int, canvas: Canvas, *, has_source: bool) -> Iterator[str]:
    if notes and has_source:
        yield _margin("", gutter, canvas)
    indent = " " * (gutter + 1)
    for note in notes:
        first = f"{indent}= note: "
        for line in wrap(printable(note), canvas.width, first=first, rest=" " * len(first)):
            yield line.replace("=", canvas.paint("=", Style.GUTTER), 1) if line.startswith(first) else line


def _margin(number: str, gutter: int, canvas: Canvas) -> str:
    return canvas.paint(f"{number:>{gutter}} |", Style.GUTTER)


def _marked(span: Span, canvas: Canvas, gutter: int) -> tuple[str, int, int]:
    """The source line as shown, the cells before the marked text, and its own cells (at least one)."""
    start = min(max(span.column - 1, 0), len(span.text))
    before = _visible(span.text[:start])
    marked = _visible(span.text[start : start + max(span.length, 1)])
    after = _visible(span.text[start + max(span.length, 1) :])
    room = MAX_SOURCE_CELLS if canvas.width is None else max(canvas.width - gutter - 3, 10)
    return _windowed(before, marked, after, room=room, ellipsis=canvas.ellipsis)


def _windowed(before: str, marked: str, after: str, *, room: int, ellipsis: str) -> tuple[str, int, int]:
    """Keep the marked text in view when the line is too long: cut in front of it first, then behind it."""
    cut = display_width(ellipsis)
    if display_width(before + marked) + cut > room:
        budget = max(room - display_width(marked) - 2 * cut, room // 2)
        kept = _last_cells(before, budget)
        before = before if kept == before else ellipsis + kept
    offset = display_width(before)
    num_cells = max(1, min(display_width(marked), room - offset))
    return shorten(before + marked + after, room, ellipsis), offset, num_cells


def _last_cells(text: str, budget: int) -> str:
    """The end of `text`, at most `budget` cells of it."""
    while text and display_width(text) > budget:
        text = text[max(1, (len(text) - budget) // 2) :]
    return text


def _visible(source: str) -> str:
    """Source text one to one, so that the carets stand where they should: control characters become `?`."""
    return "".join(" " * TAB_CELLS if char == "\t" else "?" if is_control(char) else char for char in source)
