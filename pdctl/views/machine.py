"""JSON of every value that a human view shows: field names are the dataclasses' own, enums their values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import cast

from pdctl.events import Event

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]


def to_json(value: object, *, indent: int | None = 2) -> str:
    return json.dumps(to_value(value), indent=indent, ensure_ascii=False, allow_nan=False)


def to_value(value: object) -> JsonValue:
    """`value` in JSON's own types; a type that has no such form is a TypeError, never a guess."""
    if isinstance(value, Enum):
        return to_value(value.value)
    if isinstance(value, float) and not isfinite(value):
        return None  # JSON has no infinity; a deadline that never comes is absent
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_value(each) for key, each in cast("Mapping[object, object]", value).items()}
    if isinstance(value, tuple | list):
        return [to_value(each) for each in cast("tuple[object, ...]", value)]
    if is_dataclass(value) and not isinstance(value, type):
        # Fields that don't compare, such as the source map of a topology, are no part of the value.
        return {each.name: to_value(getattr(value, each.name)) for each in fields(value) if each.compare}
    raise TypeError(f"no JSON form for {type(value).__name__}")


def event_value(event: Event) -> JsonValue:
    """An event with its name first: `{"event": "lock_taken", …}`."""
    value = to_value(event)
    assert isinstance(value, dict)
    return {"event": _WORD_START.sub("_", type(event).__name__).lower(), **value}


_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")
