from __future__ import annotations

import re

import pytest

from pdctl.views.canvas import Canvas, Style
from pdctl.views.columns import Column, Row, table_lines
from pdctl.views.text import display_width

COLUMNS = (Column(title="PROCESS"), Column(title="PID", right=True), Column(title="NODE"))
ROWS = (
    Row(cells=("prefill-0.0", "7", "日本-1")),
    Row(cells=("router-0.0", "123456", "localhost"), styles=((2, Style.GOOD),)),
)


def test_columns_are_aligned_and_numbers_stand_at_the_right() -> None:
    assert list(table_lines(COLUMNS, ROWS, Canvas())) == [
        "PROCESS         PID  NODE",
        "prefill-0.0       7  日本-1",
        "router-0.0   123456  localhost",
    ]


def test_colour_changes_no_alignment() -> None:
    colored = table_lines(COLUMNS, ROWS, Canvas(color=True))
    bare = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in colored]
    assert bare == list(table_lines(COLUMNS, ROWS, Canvas()))


def test_a_table_too_wide_becomes_records_that_lose_nothing() -> None:
    lines = list(table_lines(COLUMNS, ROWS, Canvas(width=29)))
    assert lines == [
        "prefill-0.0",
        "  pid 7, node 日本-1",
        "router-0.0",
        "  pid 123456, node localhost",
    ]


@pytest.mark.parametrize("width", [20, 24, 28])
def test_records_fit_the_width(width: int) -> None:
    lines = table_lines(COLUMNS, ROWS, Canvas(width=width))
    assert all(display_width(line) <= width for line in lines)


def test_a_table_without_rows_is_its_heading() -> None:
    assert list(table_lines(COLUMNS, (), Canvas())) == ["PROCESS  PID  NODE"]
