"""The frames between a staging sender and a staging receiver.

    sender:   MAGIC, then WANT u8, block_id u64
                      or  ARRIVED u8, block_id u64, ticket u64, dst_head u32, num_heads u32, num_tokens u32,
                          num_pages u32, num_pages x u32
                      or  DROPPED u8, block_id u64
    receiver: GRANT u8, block_id u64, ticket u64, offset u64
              DONE u8, block_id u64, status u8

Integers are big-endian; block ids are the sender's.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from runtime.transfer.wire.frames import FrameError, Status, read_exactly

MAGIC = b"pdctlst1"
MAX_PAGES = 1 << 16  # of one block

_WANT, _ARRIVED, _DROPPED, _GRANT, _DONE = range(1, 6)
_BLOCK = struct.Struct("!BQ")
_ARRIVED_BODY = struct.Struct("!BQQIIII")
_GRANT_BODY = struct.Struct("!BQQQ")
_DONE_BODY = struct.Struct("!BQB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """Give me a slot for a block."""

    block_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """The block lies in its slot: tokens in order, of these heads (the receiver's), for these pages."""

    block_id: int
    ticket: int  # of the room
    dst_head: int
    num_heads: int
    num_tokens: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """The block won't come."""

    block_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    block_id: int
    ticket: int  # for the write into the slot
    offset: int  # of the slot in the receiver's staging region


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    block_id: int
    status: Status


def pack(message: Want | Arrived | Dropped | Grant | Done) -> bytes:
    match message:
        case Want():
            return _BLOCK.pack(_WANT, message.block_id)
        case Dropped():
            return _BLOCK.pack(_DROPPED, message.block_id)
        case Grant():
            return _GRANT_BODY.pack(_GRANT, message.block_id, message.ticket, message.offset)
        case Done():
            return _DONE_BODY.pack(_DONE, message.block_id, message.status)
        case Arrived():
            heads = (message.dst_head, message.num_heads, message.num_tokens)
            num_pages = len(message.pages)
            head = _ARRIVED_BODY.pack(_ARRIVED, message.block_id, message.ticket, *heads, num_pages)
            return head + struct.pack(f"!{num_pages}I", *message.pages)


def read_from_sender(sock: socket.socket) -> Want | Arrived | Dropped:
    """Raises FrameError, PeerClosed, OSError."""
    start = bytes(read_exactly(sock, _BLOCK.size))
    kind, block_id = _BLOCK.unpack(start)
    if kind == _WANT:
        return Want(block_id=block_id)
    if kind == _DROPPED:
        return Dropped(block_id=block_id)
    if kind != _ARRIVED:
        raise FrameError(f"a staging message of the unknown kind {kind}")
    rest = read_exactly(sock, _ARRIVED_BODY.size - _BLOCK.size)
    _, _, ticket, dst_head, num_heads, num_tokens, num_pages = _ARRIVED_BODY.unpack(start + rest)
    if not 1 <= num_pages <= MAX_PAGES:
        raise FrameError(f"a block of {num_pages} pages, wanted 1 to {MAX_PAGES}")
    return Arrived(
        block_id=block_id,
        ticket=ticket,
        dst_head=dst_head,
        num_heads=num_heads,
        num_tokens=num_tokens,
        pages=struct.unpack(f"!{num_pages}I", read_exactly(sock, 4 * num_pages)),
    )


def read_from_receiver(sock: socket.socket) -> Grant | Done:
    """Raises FrameError, PeerClosed, OSError."""
    start = bytes(read_exactly(sock, 1))
    if start[0] == _GRANT:
        _, block_id, ticket, offset = _GRANT_BODY.unpack(start + read_exactly(sock, _GRANT_BODY.size - 1))
        return Grant(block_id=block_id, ticket=ticket, offset=offset)
    if start[0] != _DONE:
        raise FrameError(f"a staging message of the unknown kind {start[0]}")
    _, block_id, status = _DONE_BODY.unpack(start + read_exactly(sock, _DONE_BODY.size - 1))
    try:
        return Done(block_id=block_id, status=Status(status))
    except ValueError as error:
        raise FrameError(f"an unknown status {status}") from error
