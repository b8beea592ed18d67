"""Flag tables as JSON: one flag per line and what is usual left out, so that `diff` compares versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from typing import Any, TypeVar, cast

from pdctl.fields import FieldError, Fields, parse_fields
from pdctl.flagtable.model import Choice, Default, Flag, FlagTable, Unread, ValueType

FORMAT = "pdctl/flags/v1"

_USUAL = Flag(name="")
_Enum = TypeVar("_Enum", bound=StrEnum)


def table_text(table: FlagTable) -> str:
    head = _compact(_head(table))
    lines = ",\n".join(_compact(flag_value(flag)) for flag in table.flags)
    return f'{head[:-1]}, "flags": [\n{lines}\n]}}\n'


def table_value(table: FlagTable) -> dict[str, object]:
    """What `table_text` says, as values."""
    return {**_head(table), "flags": [flag_value(flag) for flag in table.flags]}


def _head(table: FlagTable) -> dict[str, object]:
    return {"format": FORMAT, "program": table.program, "version": table.version}


def flag_value(flag: Flag) -> dict[str, object]:
    """The fields of a flag that aren't as usual."""
    stated = ((field.name, _value_of(flag, field.name)) for field in fields(flag))
    return {name: value for name, value in stated if value != _value_of(_USUAL, name)}


def parse_table(what: str, text: bytes) -> FlagTable:
    """Read a table; `FieldError` where it is damaged or of another format."""
    document = parse_fields(what, text)
    found = document.text("format")
    if found != FORMAT:
        raise FieldError(f"{what} has the format `{found}`, this pdctl reads `{FORMAT}`")
    return FlagTable.of(
        document.text("program"),
        document.text("version"),
        (_flag(each) for each in document.objects("flags")),
    )


def _flag(fields: Fields) -> Flag:
    """Only stated fields are looked at: a plan reads half a thousand flags, most with two or three."""
    try:
        stated = {name: _READERS[name](fields, name) for name in fields.values}
    except KeyError as error:
        raise FieldError(f"{fields.what} has an unknown field {error}") from error
    if "name" not in stated:
        raise FieldError(f"{fields.what} has no `name`")
    return Flag(**cast("dict[str, Any]", stated))


def _nargs(fields: Fields, name: str) -> int | str | None:
    found = fields.values.get(name)
    if found is None or found in ("?", "*", "+") or (isinstance(found, int) and found >= 0):
        return cast("int | str | None", found)
    raise FieldError(f"`nargs` of {fields.what} is {found!r:.80}")


def _choices(fields: Fields, name: str) -> tuple[Choice, ...]:
    found = fields.items(name)
    if not all(isinstance(each, str | int | float) for each in found):
        raise FieldError(f"`choices` of {fields.what} is {found!r:.80}")
    return tuple(cast("Sequence[Choice]", found))


def _default(fields: Fields, name: str) -> Default:
    found = fields.values.get(name)
    parts = cast("list[object]", found) if isinstance(found, list) else [found]
    if not all(part is None or isinstance(part, str | int | float) for part in parts):
        raise FieldError(f"`default` of {fields.what} is {found!r:.80}")
    return cast("Default", tuple(parts) if isinstance(found, list) else found)


def _type(fields: Fields, name: str) -> ValueType:
    return _member(ValueType, fields, fields.text(name))


def _unread(fields: Fields, name: str) -> tuple[Unread, ...]:
    return tuple(_member(Unread, fields, each) for each in fields.texts(name))


def _member(kind: type[_Enum], fields: Fields, found: object) -> _Enum:
    try:
        return kind(found)
    except ValueError as error:
        raise FieldError(f"{fields.what} has {found!r:.80}") from error


_READERS: Mapping[str, Callable[[Fields, str], object]] = {
    **dict.fromkeys(("name", "negation", "dest", "successor"), Fields.text),
    **dict.fromkeys(
        ("repeats", "is_required", "is_open", "is_deprecated", "is_refused"),
        Fields.flag,
    ),
    "aliases": Fields.texts,
    "type": _type,
    "nargs": _nargs,
    "choices": _choices,
    "default": _default,
    "unread": _unread,
}


def _value_of(flag: Flag, name: str) -> object:
    return getattr(flag, name)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
