"""Typed reading of JSON objects that another program wrote.

Nothing is guessed: a field of another type, or an absent one that is needed, is a `FieldError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

_T = TypeVar("_T")


class FieldError(ValueError):
    """A JSON document lacks a field or holds another type in it."""


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object; `what` names it in errors."""

    what: str
    values: Mapping[str, object]

    def text(self, name: str) -> str:
        return self._required(name, self.optional_text(name))

    def integer(self, name: str) -> int:
        return self._required(name, self.optional_integer(name))

    def number(self, name: str) -> float:
        return self._required(name, self.optional_number(name))

    def flag(self, name: str) -> bool:
        found = self.values.get(name)
        if not isinstance(found, bool):
            raise self._wrong(name, found)
        return found

    def optional_text(self, name: str) -> str | None:
        found = self.values.get(name)
        if found is None or isinstance(found, str):
            return found
        raise self._wrong(name, found)

    def optional_integer(self, name: str) -> int | None:
        found = self.values.get(name)
        if found is None or (isinstance(found, int) and not isinstance(found, bool)):
            return found
        raise self._wrong(name, found)

    def optional_number(self, name: str) -> float | None:
        found = self.values.get(name)
        if found is None or (isinstance(found, int | float) and not isinstance(found, bool)):
            return found
        raise self._wrong(name, found)

    def texts(self, name: str) -> tuple[str, ...]:
        found = self.items(name)
        if not all(isinstance(each, str) for each in found):
            raise self._wrong(name, found)
        return tuple(cast("Sequence[str]", found))

    def text_map(self, name: str) -> dict[str, str]:
        """Null values are left out: the shim reads them as `unset this variable`."""
        found = self.object(name).values
        if not all(value is None or isinstance(value, str) for value in found.values()):
            raise self._wrong(name, found)
        return {key: value for key, value in found.items() if isinstance(value, str)}

    def object(self, name: str) -> Fields:
        found = self.values.get(name)
        if not isinstance(found, dict):
            raise self._wrong(name, found)
        return Fields(f"{self.what}.{name}", cast("dict[str, object]", found))

    def optional_object(self, name: str) -> Fields | None:
        return None if self.values.get(name) is None else self.object(name)

    def objects(self, name: str) -> tuple[Fields, ...]:
        found = self.items(name)
        if not all(isinstance(each, dict) for each in found):
            raise self._wrong(name, found)
        return tuple(
            Fields(f"{self.what}.{name}", each) for each in cast("Sequence[dict[str, object]]", found)
        )

    def items(self, name: str) -> list[object]:
        found = self.values.get(name)
        if not isinstance(found, list):
            raise self._wrong(name, found)
        return cast("list[object]", found)

    def _wrong(self, name: str, found: object) -> FieldError:
        return FieldError(f"`{name}` of {self.what} is {found!r:.80}")

    def _required(self, name: str, found: _T | None) -> _T:
        if found is None:
            raise FieldError(f"{self.what} has no `{name}`")
        return found


def parse_fields(what: str, text: bytes) -> Fields:
    """Read one JSON object; `FieldError` when it is anything else."""
    try:
        found: object = json.loads(text)
    except ValueError as error:
        raise FieldError(f"{what} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise FieldError(f"{what} is not a JSON object")
    return Fields(what, cast("dict[str, object]", found))
