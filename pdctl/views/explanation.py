"""The long text behind a code on a terminal: Markdown stays readable as it is, so little is done to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pdctl.views.canvas import Canvas, Style
from pdctl.views.text import wrap

FENCE = "```"


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    code: str
    title: str


def code_lines(codes: Sequence[Code], canvas: Canvas) -> Iterator[str]:
    """A line per code."""
    for each in codes:
        first, *others = wrap(each.title, canvas.width, first=f"{each.code}  ", rest=" " * 7)
        yield canvas.paint(each.code, Style.STRONG) + first.removeprefix(each.code)
        yield from others


def explanation_lines(markdown: str, canvas: Canvas) -> Iterator[str]:
    """Headings stand out, code is indented and never wrapped, other lines are wrapped where needed."""
    is_code = False
    for line in markdown.splitlines():
        if line.startswith(FENCE):
            is_code = not is_code
        elif is_code:
            yield f"    {line}".rstrip()
        elif line.startswith("#"):
            yield canvas.paint(line.lstrip("#").strip(), Style.STRONG)
        else:
            yield from wrap(line, canvas.width)
