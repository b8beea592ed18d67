"""Typed reading of a JSON object, one field at a time, with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from runtime.engine.server.errors import RequestError, shown


@dataclass(frozen=True, slots=True)
class Fields:
    """A request body, or an object inside it. `null` and absent are the same; unknown keys are ignored.

    Routers re-serialise bodies from a typed struct and add many keys with null or default values.
    """

    values: Mapping[str, Any]
    prefix: str = ""  # path of this object within the body, for messages

    def name_of(self, key: str) -> str:
        return f"{self.prefix}{key}"

    def raw(self, key: str) -> Any:
        return self.values.get(key)

    def wrong(self, key: str, wanted: str) -> RequestError:
        return RequestError.wrong_value(self.name_of(key), self.values.get(key), wanted)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def integer(self, key: str, *, minimum: int, maximum: int) -> int | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not is_integer(value) or not minimum <= value <= maximum:
            raise self.wrong(key, f"an integer from {minimum} to {maximum}")
        return value

    def number(self, key: str, *, minimum: float, maximum: float) -> float | None:
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
            raise self.wrong(key, f"a number from {minimum:g} to {maximum:g}")
        return float(value)

    def text(self, key: str, *, max_len: int) -> str | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > max_len:
            raise self.wrong(key, f"a string of at most {max_len} characters")
        return value

    def child(self, key: str) -> Fields:
        """The object under `key`; empty when absent."""
        value = self.values.get(key)
        if value is None:
            return Fields({}, f"{self.prefix}{key}.")
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return Fields(value, f"{self.prefix}{key}.")

    def refuse(self, neutral: Mapping[str, tuple[Any, ...]]) -> None:
        """Refuse fields that change the answer in a way this engine can't, unless they hold a neutral value.

        Ignoring them would answer another question than the one asked, silently.
        """
        for key, allowed in neutral.items():
            value = self.values.get(key)
            if value is not None and value not in allowed:
                raise RequestError(
                    f"`{self.name_of(key)}` is not supported by this engine, found {shown(value)}",
                    param=self.name_of(key),
                )


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def parse_object(body: bytes) -> Fields:
    """The JSON object in a request body."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as fault:
        raise RequestError(f"the body is not valid JSON: {fault}") from fault
    if not isinstance(value, dict):
        raise RequestError(f"the body is {shown(value)}, wanted a JSON object")
    return Fields(value)
