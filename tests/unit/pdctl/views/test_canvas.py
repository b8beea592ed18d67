from __future__ import annotations

import io

import pytest

from pdctl.views.canvas import Canvas, ColorMode, Style, canvas_for

XTERM = {"TERM": "xterm-256color"}


class Terminal(io.TextIOWrapper):
    """A stream that says it's a terminal."""

    def isatty(self) -> bool:
        return True


def canvas(environ: dict[str, str], mode: ColorMode = ColorMode.AUTO, *, encoding: str = "utf-8") -> Canvas:
    stream = Terminal(io.BytesIO(), encoding=encoding)
    return canvas_for(stream, mode, environ, terminal_columns=80)


def test_a_terminal_gets_colour_width_and_live_lines() -> None:
    assert canvas(XTERM) == Canvas(width=80, color=True, unicode=True, live=True)


def test_a_pipe_gets_plain_lines_of_any_length() -> None:
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    found = canvas_for(pipe, ColorMode.AUTO, XTERM, terminal_columns=80)
    assert found == Canvas(width=None, color=False, unicode=True, live=False)


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_gets_neither_colour_nor_redrawn_lines(term: str) -> None:
    found = canvas({"TERM": term})
    assert (found.color, found.live, found.width) == (False, False, 80)


@pytest.mark.parametrize(
    ("environ", "mode", "color"),
    [
        ({"NO_COLOR": "1"}, ColorMode.AUTO, False),
        ({"NO_COLOR": ""}, ColorMode.AUTO, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, ColorMode.AUTO, False),
        ({"NO_COLOR": "1"}, ColorMode.ALWAYS, True),
        ({"FORCE_COLOR": "1"}, ColorMode.NEVER, False),
    ],
)
def test_the_option_beats_no_color_which_beats_force_color(
    environ: dict[str, str], mode: ColorMode, color: bool
) -> None:
    assert canvas(XTERM | environ, mode).color is color


def test_force_color_colours_a_pipe_without_making_it_live() -> None:
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    found = canvas_for(pipe, ColorMode.AUTO, {"FORCE_COLOR": "1"}, terminal_columns=80)
    assert (found.color, found.live) == (True, False)


def test_a_latin_1_terminal_gets_ascii_lines() -> None:
    found = canvas(XTERM, encoding="latin-1")
    assert (found.unicode, found.bar, found.ellipsis) == (False, "|", "...")


def test_without_colour_painted_text_is_the_text() -> None:
    assert Canvas(color=False).paint("ready", Style.GOOD) == "ready"
    assert Canvas(color=True).paint("ready", Style.GOOD) == "\x1b[32mready\x1b[0m"
