"""One mapping of a checked document, read by key and type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast, overload

from pdctl.topology.model import ArgValue, ArgWord, JsonArg
from pdctl.topology.tree import Value, is_private


class Section:
    """Typed access to one mapping; an absent key is the default. The schema has vouched for the types."""

    def __init__(self, value: Value) -> None:
        self._values = cast(Mapping[str, Value], value or {})

    def required_text(self, key: str) -> str:
        return cast(str, self._values[key])

    @overload
    def text(self, key: str, default: str) -> str: ...
    @overload
    def text(self, key: str, default: None) -> str | None: ...
    def text(self, key: str, default: str | None) -> str | None:
        return cast(str | None, self._values.get(key, default))

    @overload
    def integer(self, key: str, default: int) -> int: ...
    @overload
    def integer(self, key: str, default: None) -> int | None: ...
    def integer(self, key: str, default: int | None) -> int | None:
        # JSON Schema counts 2.0 as an integer.
        return int(cast(int | float, self._values[key])) if key in self._values else default

    @overload
    def number(self, key: str, default: float) -> float: ...
    @overload
    def number(self, key: str, default: None) -> float | None: ...
    def number(self, key: str, default: float | None) -> float | None:
        return float(cast(int | float, self._values[key])) if key in self._values else default

    def flag(self, key: str, default: bool) -> bool:
        return cast(bool, self._values.get(key, default))

    def optional_flag(self, key: str) -> bool | None:
        return cast(bool | None, self._values.get(key))

    def word(self, key: str) -> str | None:
        """Text that may also be written as a number."""
        value = self._values.get(key)
        return None if value is None else str(value)

    def words(self, key: str) -> tuple[str, ...]:
        return tuple(cast(list[str], self._values.get(key, [])))

    def items(self, key: str) -> list[Value]:
        return cast(list[Value], self._values.get(key, []))

    def value(self, key: str) -> Value:
        return self._values.get(key)

    def is_list(self, key: str) -> bool:
        return isinstance(self._values.get(key), list)

    def section(self, key: str) -> Section:
        return Section(self._values.get(key, {}))

    def public(self) -> list[tuple[str, Value]]:
        """The section's own keys, without those that are the user's."""
        return [(name, value) for name, value in self._values.items() if not is_private(name)]

    def args(self) -> dict[str, ArgValue]:
        return {name: _arg(value) for name, value in self.section("args").public()}

    def env(self) -> dict[str, str]:
        return self.texts("env")

    def texts(self, key: str) -> dict[str, str]:
        """A mapping whose values are all text."""
        return {name: cast(str, value) for name, value in self.section(key).public()}


def _arg(value: Value) -> ArgValue:
    if isinstance(value, list):
        return tuple(_word(item) for item in cast(list[Value], value))
    return value if value is None or isinstance(value, bool) else _word(value)


def _word(value: Value) -> ArgWord:
    if isinstance(value, dict):
        return JsonArg(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return cast(str | int | float, value)
