"""argv and environment as a shell command that can be copied: `env A=1 \\` and one flag a line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from pdctl.views.canvas import Canvas
from pdctl.views.text import display_width

_MAX_PLAIN_CELLS = 80  # a shorter command stays on one line where the canvas has no width of its own


def command_lines(
    argv: Sequence[str], env: Mapping[str, str], canvas: Canvas, *, indent: str = ""
) -> Iterator[str]:
    """Lines that run `argv` under `env` when pasted into a POSIX shell."""
    groups = [*_environment(env), *flag_groups(argv)]
    one_line = indent + " ".join(groups)
    if display_width(one_line) <= (canvas.width or _MAX_PLAIN_CELLS):
        yield one_line
        return
    for index, group in enumerate(groups):
        end = " \\" if index < len(groups) - 1 else ""
        yield f"{indent}{'' if index == 0 else '    '}{group}{end}"


def _environment(env: Mapping[str, str]) -> Iterator[str]:
    """`env NAME=value …`: unlike bare assignments it also takes names that no shell variable may have."""
    for index, (name, value) in enumerate(sorted(env.items())):
        yield f"{'env ' if index == 0 else ''}{quoted(name)}={quoted(value)}"


def flag_groups(argv: Sequence[str]) -> list[str]:
    """The program with what stands before its first flag, then each flag with its values."""
    groups: list[list[str]] = []
    for word in argv:
        if not groups or (word.startswith("--") and len(word) > 2):
            groups.append([])
        groups[-1].append(quoted(word))
    return [" ".join(group) for group in groups]


def quoted(word: str) -> str:
    """`word` quoted for a shell; control characters become escapes, which bash, ksh and zsh read."""
    if _CONTROL.search(word) is None:
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + _CONTROL.sub(_escape, escaped) + "'"


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}"


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
