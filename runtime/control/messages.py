"""The messages of the control channel, their schema, and their form on the wire.

A frame is a 4-byte big-endian length and a msgpack array `[kind, field, field, ...]`, fields in the order
of the dataclass. Every field is checked for type and bounds before an object exists; what does not fit is a
`MessageError`, and the link that carried it is closed.

    decode -> prefill   Hello, OpenRoom, AbortRoom
    prefill -> decode   Welcome, Refused, RoomState, RoomDone, AbortDone
    both                Ping
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, fields

import msgpack

from runtime.control.rooms import KVPoll

PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 16 << 20  # holds the largest `OpenRoom`
LENGTH = struct.Struct("!I")

_MAX_PAGES = 1 << 21  # two million tokens in pages of one
MAX_TEXT_LEN = 1024
_MAX_ENDPOINT_BYTES = 16_384
_MAX_LAYERS = 4096
_MAX_TOP_LOGPROBS = 1024
_MAX_UINT63 = 2**63 - 1


class MessageError(Exception):
    """Bytes that are no message of this protocol; the text names the kind, the field and what was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Decode introduces itself: how its pool is shaped, and where KV is written to."""

    version: int
    backend: str
    num_layers: int
    num_pages: int
    page_size: int
    num_kv_heads: int
    head_dim: int
    dtype: str
    endpoint: bytes  # opaque, the transfer backend's
    verify_kv: bool  # ask for checksums


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """Prefill takes this decode instance."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Prefill does not take this decode instance, and closes the link."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRoom:
    """Decode has pages for the room's prompt. `ticket` tells this opening of the room id from others."""

    room: int
    ticket: int
    prompt_len: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortRoom:
    """Decode gave the room up. Prefill answers `AbortDone` when none of its writes can land any more.

    Without a ticket the room was never opened, and there is no answer.
    """

    room: int
    ticket: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortDone:
    room: int
    ticket: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomState:
    """Prefill's word on the room: `Transferring` once, or `Failed` with the reason, after its last write."""

    room: int
    ticket: int
    state: KVPoll
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomDone:
    """All KV is applied; decode goes on from the first token."""

    room: int
    ticket: int
    prompt_len: int
    first_token: int
    logprob: float | None
    top_logprobs: tuple[tuple[int, float], ...]
    checksums: tuple[int, ...] | None  # one per layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Says that the sender is alive; there is no answer, both sides send it."""


Message = Hello | Welcome | Refused | OpenRoom | AbortRoom | AbortDone | RoomState | RoomDone | Ping
Check = Callable[[object], object]


def pack_message(message: Message) -> bytes:
    """The frame of a message, length included."""
    kind = _KIND_OF[type(message)]
    body = msgpack.Packer().pack([kind, *(getattr(message, field.name) for field in fields(message))])
    assert body is not None, "a packer that resets itself returns what it packed"
    if len(body) > MAX_FRAME_BYTES:
        raise MessageError(f"`{kind}` takes {len(body)} bytes, at most {MAX_FRAME_BYTES} are sent")
    return LENGTH.pack(len(body)) + body


def unpack_message(body: bytes) -> Message:
    """Read a frame's body. Whatever the bytes are, the result is a valid message or a MessageError."""
    try:
        parts = msgpack.unpackb(body, use_list=False, max_array_len=_MAX_PAGES, max_map_len=0, max_ext_len=0)
    except (ValueError, msgpack.UnpackException) as error:
        raise MessageError(f"not msgpack: {error!r:.200}") from error
    if not isinstance(parts, tuple) or not parts or not isinstance(parts[0], str):
        raise MessageError(f"not a message: {parts!r:.80}")
    schema = _SCHEMAS.get(parts[0])
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


def _integer(lowest: int, highest: int) -> Check:
    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise ValueError(f"found {value!r:.40}, wanted an integer from {lowest} to {highest}")
        return value

    return check


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT_LEN:
        raise ValueError(f"found {value!r:.40}, wanted a text of at most {MAX_TEXT_LEN} characters")
    return value


def _endpoint(value: object) -> bytes:
    if not isinstance(value, bytes) or len(value) > _MAX_ENDPOINT_BYTES:
        raise ValueError(f"found {value!r:.40}, wanted at most {_MAX_ENDPOINT_BYTES} bytes")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"found {value!r:.40}, wanted a boolean")
    return value


def _number(value: object) -> float:
    if not isinstance(value, float):
        raise TypeError(f"found {value!r:.40}, wanted a number")
    return value


def _tuple_of(check_item: Check, max_len: int) -> Check:
    def check(value: object) -> tuple[object, ...]:
        if not isinstance(value, tuple) or len(value) > max_len:
            raise ValueError(f"found {value!r:.40}, wanted a list of at most {max_len}")
        return tuple(check_item(item) for item in value)

    return check


def _top_logprob(value: object) -> tuple[object, object]:
    if not isinstance(value, tuple) or len(value) != 2:
        raise ValueError(f"found {value!r:.40}, wanted a token id and its logprob")
    return _token(value[0]), _number(value[1])


def _or_none(check_value: Check) -> Check:
    return lambda value: None if value is None else check_value(value)


def _room_state(value: object) -> KVPoll:
    return KVPoll(value)  # a ValueError of its own for anything else


_size = _integer(1, 1 << 31)
_token = _integer(0, 1 << 31)
_room = {"room": _integer(0, _MAX_UINT63), "ticket": _integer(0, _MAX_UINT63)}

_SCHEMAS: dict[str, tuple[type[Message], dict[str, Check]]] = {
    "hello": (
        Hello,
        {
            "version": _integer(0, 1 << 16),
            "backend": _text,
            "num_layers": _integer(1, _MAX_LAYERS),
            "num_pages": _size,
            "page_size": _size,
            "num_kv_heads": _size,
            "head_dim": _size,
            "dtype": _text,
            "endpoint": _endpoint,
            "verify_kv": _flag,
        },
    ),
    "welcome": (Welcome, {"version": _integer(0, 1 << 16)}),
    "refused": (Refused, {"reason": _text}),
    "open_room": (
        OpenRoom,
        {**_room, "prompt_len": _size, "pages": _tuple_of(_integer(0, (1 << 31) - 1), _MAX_PAGES)},
    ),
    "abort_room": (AbortRoom, {**_room, "ticket": _or_none(_room["ticket"]), "reason": _text}),
    "abort_done": (AbortDone, _room),
    "room_state": (RoomState, {**_room, "state": _room_state, "reason": _text}),
    "room_done": (
        RoomDone,
        {
            **_room,
            "prompt_len": _size,
            "first_token": _token,
            "logprob": _or_none(_number),
            "top_logprobs": _tuple_of(_top_logprob, _MAX_TOP_LOGPROBS),
            "checksums": _or_none(_tuple_of(_integer(0, 2**32 - 1), _MAX_LAYERS)),
        },
    ),
    "ping": (Ping, {}),
}
_KIND_OF: dict[type, str] = {kind: name for name, (kind, _) in _SCHEMAS.items()}
