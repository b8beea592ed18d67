"""Messages as msgpack arrays `[kind, field, field, ...]`, checked field by field before an object exists.

A codec knows the kinds of one channel. Fields stand in the order of the dataclass; what does not fit its
check is a `MessageError`, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Generic, TypeVar

import msgpack

MAX_TEXT_LEN = 1024
MAX_UINT63 = 2**63 - 1
MAX_ITEMS = 1 << 21  # of any list: two million tokens in pages of one

Check = Callable[[object], object]
Schema = tuple[type, Mapping[str, Check]]
Kind = TypeVar("Kind")


class MessageError(Exception):
    """Bytes that are no message of this channel; the text names the kind, the field and what was found."""


class Codec(Generic[Kind]):
    """Packs and reads the messages of one channel."""

    def __init__(self, schemas: Mapping[str, Schema], *, max_bytes: int) -> None:
        """`schemas`: by the name on the wire, the dataclass and a check for each of its fields."""
        self._schemas = schemas
        self._name_of = {kind: name for name, (kind, _) in schemas.items()}
        self._max_bytes = max_bytes

    def pack(self, message: Kind) -> bytes:
        name = self._name_of[type(message)]
        values = [getattr(message, field.name) for field in fields(message)]  # type: ignore[arg-type]
        body = msgpack.Packer().pack([name, *values])
        assert body is not None, "a packer that resets itself returns what it packed"
        if len(body) > self._max_bytes:
            raise MessageError(f"`{name}` takes {len(body)} bytes, at most {self._max_bytes} are sent")
        return body

    def unpack(self, body: bytes) -> Kind:
        """The message in `body`: a valid one, or a MessageError."""
        try:
            parts = msgpack.unpackb(
                body, use_list=False, max_array_len=MAX_ITEMS, max_map_len=0, max_ext_len=0
            )
        except (ValueError, msgpack.UnpackException) as error:
            raise MessageError(f"not msgpack: {error!r:.200}") from error
        if not isinstance(parts, tuple) or not parts or not isinstance(parts[0], str):
            raise MessageError(f"not a message: {parts!r:.80}")
        schema = self._schemas.get(parts[0])
        if schema is None:
            raise MessageError(f"unknown message `{parts[0]:.40}`")
        kind, checks = schema
        if len(parts) - 1 != len(checks):
            raise MessageError(f"`{parts[0]}` has {len(parts) - 1} fields, wanted {len(checks)}")
        values = {}
        for (name, check), value in zip(checks.items(), parts[1:], strict=True):
            try:
                values[name] = check(value)
            except (TypeError, ValueError) as error:
                raise MessageError(f"`{parts[0]}.{name}`: {error}") from error
        return kind(**values)


def integer(lowest: int, highest: int) -> Check:
    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise ValueError(f"found {value!r:.40}, wanted an integer from {lowest} to {highest}")
        return value

    return check


def octets(max_bytes: int) -> Check:
    def check(value: object) -> bytes:
        if not isinstance(value, bytes) or len(value) > max_bytes:
            raise ValueError(f"found {value!r:.40}, wanted at most {max_bytes} bytes")
        return value

    return check


def text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT_LEN:
        raise ValueError(f"found {value!r:.40}, wanted a text of at most {MAX_TEXT_LEN} characters")
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"found {value!r:.40}, wanted a boolean")
    return value


def number(value: object) -> float:
    if not isinstance(value, float):
        raise TypeError(f"found {value!r:.40}, wanted a number")
    return value


def tuple_of(check_item: Check, max_len: int) -> Check:
    def check(value: object) -> tuple[object, ...]:
        if not isinstance(value, tuple) or len(value) > max_len:
            raise ValueError(f"found {value!r:.40}, wanted a list of at most {max_len}")
        return tuple(check_item(item) for item in value)

    return check


def or_none(check_value: Check) -> Check:
    return lambda value: None if value is None else check_value(value)


size = integer(1, 1 << 31)
index = integer(0, (1 << 31) - 1)
uint63 = integer(0, MAX_UINT63)
pages = tuple_of(index, MAX_ITEMS)
