"""What lines are drawn on: how wide, with which colours and characters. Known once per stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TextIO

MIN_WIDTH = 20


class Writable(Protocol):
    """As much of a text stream as `print` needs."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...


class ColorMode(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Style(StrEnum):
    """What a piece of text is, with its SGR code. Colour is never the only carrier of meaning."""

    STRONG = "1"
    FAINT = "2"
    ERROR = "1;31"
    WARNING = "1;33"
    GOOD = "32"
    BUSY = "33"
    MARK = "1;36"
    GUTTER = "1;34"


PREFIX_STYLES = ("36", "35", "33", "32", "34", "96", "95", "93", "92", "94")


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    width: int | None = None  # cells; None: a file or a pipe, where nothing is shortened
    color: bool = False
    unicode: bool = True  # False: the stream's encoding has no box characters
    live: bool = False  # lines may be redrawn in place

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.color and text else text

    @property
    def bar(self) -> str:
        return "│" if self.unicode else "|"

    @property
    def rule(self) -> str:
        return "─" if self.unicode else "-"

    @property
    def ellipsis(self) -> str:
        return "…" if self.unicode else "..."

    @property
    def arrow(self) -> str:
        return "→" if self.unicode else "->"


def canvas_for(
    stream: TextIO, mode: ColorMode, environ: Mapping[str, str], *, terminal_columns: int
) -> Canvas:
    """The canvas of a stream.

    `--color` wins over NO_COLOR, which wins over FORCE_COLOR, which wins over what the terminal can do.
    """
    is_terminal = stream.isatty()
    is_dumb = environ.get("TERM", "") in ("dumb", "")
    return Canvas(
        width=max(MIN_WIDTH, terminal_columns) if is_terminal else None,
        color=_wants_color(mode, environ, is_capable=is_terminal and not is_dumb),
        unicode=_can_encode(stream, "│─…→"),
        live=is_terminal and not is_dumb,
    )


def _wants_color(mode: ColorMode, environ: Mapping[str, str], *, is_capable: bool) -> bool:
    if mode is not ColorMode.AUTO:
        return mode is ColorMode.ALWAYS
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or is_capable


def _can_encode(stream: TextIO, characters: str) -> bool:
    try:
        characters.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
