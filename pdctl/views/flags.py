"""A flag table for people: one line per flag."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.flagtable.model import Default, Flag, FlagTable, ValueType
from pdctl.views.canvas import Canvas
from pdctl.views.columns import Column, Row, table_lines
from pdctl.views.quantities import counted
from pdctl.views.text import wrap

COLUMNS = (Column(title="FLAG"), Column(title="DEFAULT"), Column(title="TAKES"))
_COUNTS = {"?": "[{}]", "*": "[{} …]", "+": "{} …"}


def flag_lines(table: FlagTable, canvas: Canvas) -> Iterator[str]:
    """The flags in the order of the program, then how many there are."""
    rows = [Row(cells=(_spelled(flag), _default(flag.default), _taken(flag))) for flag in table.flags]
    yield from table_lines(COLUMNS, rows, canvas)
    yield ""
    flags, spellings = counted(len(table.flags), "flag"), counted(len(table.by_spelling), "spelling")
    yield f"{table.label}: {flags} in {spellings}"
    unread = [flag.name for flag in table.flags if flag.unread]
    if unread:
        yield from wrap(f"told only when it runs: {', '.join(unread)}", canvas.width)


def _spelled(flag: Flag) -> str:
    return ", ".join(f"--{spelling}" for spelling in flag.spellings)


def _taken(flag: Flag) -> str:
    if flag.is_switch:
        taken = "nothing"
    elif flag.choices is not None:
        taken = "|".join(str(each) for each in flag.choices)
    else:
        taken = "value" if flag.type is ValueType.OPAQUE else flag.type.value
    taken = _COUNTS.get(str(flag.nargs), "{}").format(taken)
    return f"{taken} (deprecated)" if flag.is_deprecated else taken


def _default(default: Default) -> str:
    match default:
        case None | False | ():
            return "-"
        case tuple():
            return " ".join(str(each) for each in default)
        case _:
            return str(default)
