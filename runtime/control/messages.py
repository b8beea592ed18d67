"""The messages of the control channel, their schema, and their form on the wire.

A frame is a 4-byte big-endian length and a message as in `runtime/control/schema.py`. A link that carried
anything else is closed.

    decode -> prefill   Hello, OpenRoom, AbortRoom
    prefill -> decode   Welcome, Refused, RoomState, RoomDone, AbortDone
    rank -> leader      RankUp, Reported (inside one engine, on a port of its own)
    both                Ping
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from runtime.control import schema
from runtime.control.rooms import KVPoll
from runtime.control.schema import MAX_TEXT_LEN, Codec, MessageError, Schema

__all__ = ["LENGTH", "MAX_FRAME_BYTES", "MAX_TEXT_LEN", "MessageError", "pack_message", "unpack_message"]

PROTOCOL_VERSION = 2
MAX_FRAME_BYTES = 16 << 20  # holds the largest `OpenRoom`
LENGTH = struct.Struct("!I")

MAX_ENDPOINT_BYTES = 16_384
MAX_RANKS = 1024
MAX_LAYERS = 4096
_MAX_CHECKSUMS = 1 << 18
_MAX_TOP_LOGPROBS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Decode introduces itself: how its ranks split attention, how their pools are shaped, where KV goes."""

    version: int
    backend: str
    attn_tp_size: int
    attn_dp_size: int
    num_layers: int
    num_pages: int  # of one rank's pool
    page_size: int
    num_kv_heads: int  # the model's, over all ranks
    head_dim: int
    dtype: str
    endpoints: tuple[bytes, ...]  # by tp_rank; opaque, the transfer backend's
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
    attn_dp_rank: int  # whose pool the pages are of: each of its ranks has the same ones
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
    checksums: tuple[int, ...] | None  # by layer, then by the model's KV heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Says that the sender is alive; there is no answer, both sides send it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankUp:
    """A rank is linked to the leader of its engine, which drew `token` and told it to its ranks alone."""

    tp_rank: int
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What a rank was told to do, and to report by this id, is done; or it failed for a reason."""

    report_id: int
    num_bytes: int  # that it moved
    reason: str | None


Message = (
    Hello
    | Welcome
    | Refused
    | OpenRoom
    | AbortRoom
    | AbortDone
    | RoomState
    | RoomDone
    | Ping
    | RankUp
    | Reported
)


def pack_message(message: Message) -> bytes:
    """The frame of a message, length included."""
    body = _CODEC.pack(message)
    return LENGTH.pack(len(body)) + body


def unpack_message(body: bytes) -> Message:
    """Read a frame's body. Whatever the bytes are, the result is a valid message or a MessageError."""
    return _CODEC.unpack(body)


def _top_logprob(value: object) -> tuple[object, object]:
    if not isinstance(value, tuple) or len(value) != 2:
        raise ValueError(f"found {value!r:.40}, wanted a token id and its logprob")
    return _token(value[0]), schema.number(value[1])


def _room_state(value: object) -> KVPoll:
    return KVPoll(value)  # a ValueError of its own for anything else


_token = schema.integer(0, 1 << 31)
_version = schema.integer(0, 1 << 16)
_rank = schema.integer(0, MAX_RANKS - 1)
_room = {"room": schema.uint63, "ticket": schema.uint63}

_SCHEMAS: dict[str, Schema] = {
    "hello": (
        Hello,
        {
            "version": _version,
            "backend": schema.text,
            "attn_tp_size": schema.integer(1, MAX_RANKS),
            "attn_dp_size": schema.integer(1, MAX_RANKS),
            "num_layers": schema.integer(1, MAX_LAYERS),
            "num_pages": schema.size,
            "page_size": schema.size,
            "num_kv_heads": schema.size,
            "head_dim": schema.size,
            "dtype": schema.text,
            "endpoints": schema.tuple_of(schema.octets(MAX_ENDPOINT_BYTES), MAX_RANKS),
            "verify_kv": schema.flag,
        },
    ),
    "welcome": (Welcome, {"version": _version}),
    "refused": (Refused, {"reason": schema.text}),
    "open_room": (
        OpenRoom,
        {**_room, "attn_dp_rank": _rank, "prompt_len": schema.size, "pages": schema.pages},
    ),
    "abort_room": (
        AbortRoom,
        {**_room, "ticket": schema.or_none(schema.uint63), "reason": schema.text},
    ),
    "abort_done": (AbortDone, _room),
    "room_state": (RoomState, {**_room, "state": _room_state, "reason": schema.text}),
    "room_done": (
        RoomDone,
        {
            **_room,
            "prompt_len": schema.size,
            "first_token": _token,
            "logprob": schema.or_none(schema.number),
            "top_logprobs": schema.tuple_of(_top_logprob, _MAX_TOP_LOGPROBS),
            "checksums": schema.or_none(schema.tuple_of(schema.integer(0, 2**32 - 1), _MAX_CHECKSUMS)),
        },
    ),
    "ping": (Ping, {}),
    "rank_up": (RankUp, {"tp_rank": _rank, "token": schema.uint63}),
    "reported": (
        Reported,
        {"report_id": schema.uint63, "num_bytes": schema.uint63, "reason": schema.or_none(schema.text)},
    ),
}
_CODEC: Codec[Message] = Codec(_SCHEMAS, max_bytes=MAX_FRAME_BYTES)
