"""Flag tables as JSON: one flag per line and what is usual left out, so that `diff` compares versions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from enum import StrEnum
from typing import TypeVar, cast

from pdctl.fields import FieldError, Fields, parse_fields
from pdctl.flagtable.model import Choice, Default, Flag, FlagTable, ScalarDefault, Unread, ValueType

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
    values = fields.values
    return Flag(
        name=fields.text("name"),
        aliases=_texts(fields, "aliases"),
        negation=fields.optional_text("negation"),
        type=_member(ValueType, fields, values.get("type", _USUAL.type)),
        nargs=_nargs(fields),
        choices=_choices(fields),
        default=_default(fields),
        dest=fields.optional_text("dest"),
        repeats=_is(fields, "repeats"),
        is_required=_is(fields, "is_required"),
        is_open=_is(fields, "is_open"),
        is_deprecated=_is(fields, "is_deprecated"),
        is_refused=_is(fields, "is_refused"),
        successor=fields.optional_text("successor"),
        unread=tuple(_member(Unread, fields, each) for each in _texts(fields, "unread")),
    )


def _is(fields: Fields, name: str) -> bool:
    return name in fields.values and fields.flag(name)


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    return fields.texts(name) if name in fields.values else ()


def _nargs(fields: Fields) -> int | str | None:
    found = fields.values.get("nargs")
    if found is None or found in ("?", "*", "+") or (isinstance(found, int) and found >= 0):
        return cast("int | str | None", found)
    raise FieldError(f"`nargs` of {fields.what} is {found!r:.80}")


def _choices(fields: Fields) -> tuple[Choice, ...] | None:
    if "choices" not in fields.values:
        return None
    found = fields.items("choices")
    if not all(isinstance(each, str | int | float) for each in found):
        raise FieldError(f"`choices` of {fields.what} is {found!r:.80}")
    return tuple(cast("Sequence[Choice]", found))


def _default(fields: Fields) -> Default:
    found = fields.values.get("default")
    if isinstance(found, list):
        found = tuple(cast("list[object]", found))
    parts = cast("tuple[object, ...]", found) if isinstance(found, tuple) else (found,)
    if not all(part is None or isinstance(part, str | int | float) for part in parts):
        raise FieldError(f"`default` of {fields.what} is {found!r:.80}")
    return cast("Default | ScalarDefault", found)


def _member(kind: type[_Enum], fields: Fields, found: object) -> _Enum:
    try:
        return kind(found)
    except ValueError as error:
        raise FieldError(f"{fields.what} has {found!r:.80}") from error


def _value_of(flag: Flag, name: str) -> object:
    return getattr(flag, name)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
