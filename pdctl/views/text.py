"""Text as a terminal shows it: width in cells, shortening, wrapping, and what must never reach it raw."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

# CSI and OSC sequences first, then any other escape with its one following character.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
TAB_CELLS = 4


def display_width(text: str) -> int:
    """Number of terminal cells that `text` takes: wide characters take two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def printable(text: str) -> str:
    """`text` without escape sequences, tabs or control characters.

    Output of other programs passes through here before it is shown: it must not move the cursor, clear the
    screen or rename the window. A carriage return keeps only what the line would show at its end.
    """
    visible = _ESCAPE.sub("", text).rstrip("\r\n").rsplit("\r", 1)[-1].replace("\t", " " * TAB_CELLS)
    return "".join(char for char in visible if not is_control(char))


def is_control(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or char in _DIRECTION_MARKS


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """`text` cut at its end to at most `width` cells."""
    if display_width(text) <= width:
        return text
    room = width - display_width(ellipsis)
    if room < 0:
        return ""
    kept, used = 0, 0
    for char in text:
        used += _cells(char)
        if used > room:
            break
        kept += 1
    return text[:kept] + ellipsis


def pad(text: str, width: int, *, right: bool = False) -> str:
    """`text` filled with spaces to `width` cells; `right` moves it to the right edge."""
    fill = " " * max(0, width - display_width(text))
    return fill + text if right else text + fill


def wrap(text: str, width: int | None, *, first: str = "", rest: str = "") -> Iterator[str]:
    """Lines of at most `width` cells, broken at spaces; `first` opens the first line and `rest` each other.

    A word longer than a line stays whole: paths and commands must remain easy to copy. No width: one line.
    """
    if width is None:
        yield first + text
        return
    line, empty = first, True
    for word in text.split(" "):
        if not empty and display_width(line) + 1 + display_width(word) > width:
            yield line
            line, empty = rest, True
        line += word if empty else f" {word}"
        empty = False
    yield line


def fold(text: str, width: int | None) -> Iterator[str]:
    """`text` cut anywhere into pieces of at most `width` cells, at least one piece."""
    while width is not None and display_width(text) > width:
        head = shorten(text, width, "") or text[:1]
        yield head
        text = text[len(head) :]
    yield text


def _cells(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


# Characters that reorder what is shown: a log line must not make a path read backwards.
_DIRECTION_MARKS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
