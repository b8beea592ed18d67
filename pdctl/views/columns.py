"""A table that stays complete: aligned columns where they fit, else one record under the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pdctl.views.canvas import Canvas, Style
from pdctl.views.text import display_width, pad, wrap

GAP = "  "
NOTHING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    title: str
    right: bool = False  # numbers stand at the right edge


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One record: a cell per column, and the style of some of them by column index."""

    cells: tuple[str, ...]
    styles: tuple[tuple[int, Style], ...] = ()


def table_lines(columns: Sequence[Column], rows: Sequence[Row], canvas: Canvas) -> Iterator[str]:
    """Lines of a table, or of stacked records when the canvas is too narrow for it."""
    widths = [
        max([display_width(column.title), *(display_width(row.cells[index]) for row in rows)])
        for index, column in enumerate(columns)
    ]
    total = sum(widths) + len(GAP) * (len(widths) - 1)
    if canvas.width is not None and total > canvas.width:
        yield from _records(columns, rows, canvas)
        return
    title = Row(cells=tuple(column.title for column in columns))
    yield canvas.paint(_aligned(title, columns, widths, Canvas()), Style.FAINT)
    for row in rows:
        yield _aligned(row, columns, widths, canvas)


def _aligned(row: Row, columns: Sequence[Column], widths: Sequence[int], canvas: Canvas) -> str:
    styles = dict(row.styles)
    cells: list[str] = []
    for index, (cell, column, width) in enumerate(zip(row.cells, columns, widths, strict=True)):
        is_last = index == len(columns) - 1 and not column.right
        padded = cell if is_last else pad(cell, width, right=column.right)
        style = styles.get(index)
        cells.append(canvas.paint(padded, style) if style else padded)
    return GAP.join(cells).rstrip()


def _records(columns: Sequence[Column], rows: Sequence[Row], canvas: Canvas) -> Iterator[str]:
    """The first cell as a heading, the others below it as `title value`, wrapped between pairs."""
    for row in rows:
        yield canvas.paint(row.cells[0], Style.STRONG)
        pairs = [
            f"{column.title.lower()} {cell}".replace(" ", "\N{NO-BREAK SPACE}")
            for column, cell in zip(columns[1:], row.cells[1:], strict=True)
            if cell != NOTHING
        ]
        for line in wrap(", ".join(pairs), canvas.width, first=GAP, rest=GAP):
            yield line.replace("\N{NO-BREAK SPACE}", " ")
