"""Names that a topology can use, for people: a heading per kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pdctl.views.canvas import Canvas, Style
from pdctl.views.text import display_width, pad, wrap


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    kind: str
    name: str
    about: str = ""


def listing_lines(entries: Sequence[Entry], canvas: Canvas) -> Iterator[str]:
    """Kinds in their order, an empty line between two."""
    for number, (kind, group) in enumerate(groupby(entries, key=lambda entry: entry.kind)):
        if number:
            yield ""
        yield canvas.paint(str(kind), Style.STRONG)
        members = list(group)
        cells = max(display_width(entry.name) for entry in members)
        for entry in members:
            first = f"  {pad(entry.name, cells)}  "
            for line in wrap(entry.about, canvas.width, first=first, rest="      "):
                yield line.rstrip()
