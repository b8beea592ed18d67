"""What the leader tells all ranks of its engine, and the form in which it goes over the wire.

Every rank gets every command, in one order, and does its own part of it. Commands with an `Asked` name are
answered by every rank; the others are not, and nobody waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.control import schema
from runtime.control.messages import MAX_ENDPOINT_BYTES, MAX_RANKS
from runtime.control.schema import Codec, Schema
from runtime.engine.compute import Chunk

MAX_COMMAND_BYTES = 1 << 28
_MAX_CHUNKS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """Link up with the leader at this address: reports go there."""

    host: str
    port: int
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Compute the chunks; those of one attention-DP rank are neighbours, in the order of the ranks."""

    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAsked:
    """The answer is the rank's endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowAsked:
    """Let senders that know the ticket write to pages of one attention-DP rank. Empty answer: it holds."""

    ticket: int
    attn_dp_rank: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoke:
    """Begin no write under the ticket any more. The ranks of the DP rank report when none is under way."""

    report_id: int
    ticket: int
    attn_dp_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectAsked:
    """A decode engine that pages are sent to from now on. The answer is why it can't be reached, or empty."""

    peer_id: int
    attn_tp_size: int
    attn_dp_size: int
    num_pages: int
    endpoints: tuple[bytes, ...]  # by tp_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnect:
    peer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendPages:
    """Copy whole pages of a room, each rank its heads of them. Those that have any report the end."""

    report_id: int
    peer_id: int
    ticket: int
    src_dp_rank: int
    dst_dp_rank: int
    src_pages: tuple[int, ...]
    dst_pages: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelSends:
    peer_id: int
    ticket: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksumAsked:
    """The answer is msgpack: the CRC-32 of each layer and head of the rank, none from other DP ranks."""

    attn_dp_rank: int
    pages: tuple[int, ...]
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The engine closes."""


Asked = DescribeAsked | AllowAsked | ConnectAsked | ChecksumAsked
Told = Invitation | Step | Disconnect | SendPages | CancelSends | Revoke | Stop
Command = Asked | Told


def _chunk(value: object) -> Chunk:
    if not isinstance(value, tuple) or len(value) != 4:
        raise ValueError(f"found {value!r:.40}, wanted the four parts of a chunk")
    token_ids, start_pos, pages, attn_dp_rank = value
    return Chunk(
        token_ids=schema.pages(token_ids),  # type: ignore[arg-type]  # checks give `object`
        start_pos=schema.index(start_pos),  # type: ignore[arg-type]
        pages=schema.pages(pages),  # type: ignore[arg-type]
        attn_dp_rank=_rank(attn_dp_rank),  # type: ignore[arg-type]
    )


_rank = schema.integer(0, MAX_RANKS - 1)
_ranks = schema.integer(1, MAX_RANKS)

_SCHEMAS: dict[str, Schema] = {
    "invitation": (
        Invitation,
        {"host": schema.text, "port": schema.integer(1, 65_535), "token": schema.uint63},
    ),
    "step": (Step, {"chunks": schema.tuple_of(_chunk, _MAX_CHUNKS)}),
    "describe": (DescribeAsked, {}),
    "allow": (AllowAsked, {"ticket": schema.uint63, "attn_dp_rank": _rank, "pages": schema.pages}),
    "revoke": (
        Revoke,
        {"report_id": schema.uint63, "ticket": schema.uint63, "attn_dp_rank": _rank},
    ),
    "connect": (
        ConnectAsked,
        {
            "peer_id": schema.uint63,
            "attn_tp_size": _ranks,
            "attn_dp_size": _ranks,
            "num_pages": schema.size,
            "endpoints": schema.tuple_of(schema.octets(MAX_ENDPOINT_BYTES), MAX_RANKS),
        },
    ),
    "disconnect": (Disconnect, {"peer_id": schema.uint63}),
    "send": (
        SendPages,
        {
            "report_id": schema.uint63,
            "peer_id": schema.uint63,
            "ticket": schema.uint63,
            "src_dp_rank": _rank,
            "dst_dp_rank": _rank,
            "src_pages": schema.pages,
            "dst_pages": schema.pages,
        },
    ),
    "cancel": (CancelSends, {"peer_id": schema.uint63, "ticket": schema.uint63}),
    "checksum": (
        ChecksumAsked,
        {"attn_dp_rank": _rank, "pages": schema.pages, "num_tokens": schema.size},
    ),
    "stop": (Stop, {}),
}
COMMANDS: Codec[Command] = Codec(_SCHEMAS, max_bytes=MAX_COMMAND_BYTES)
