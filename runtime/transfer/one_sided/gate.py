"""The frames of the gate.

sender:   MAGIC, then ASK u8, a frame of `wire.frames`
                  or  OVER u8, ticket u64, broken u8
receiver: an answer of `wire.frames` to each ASK, in order
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.kv.page_runs import Write
from runtime.transfer.wire.frames import Frame, FrameError, pack_frame, read_exactly, read_frame

MAGIC = b"pdctlgt1"

_ASK, _OVER = 1, 2
_OVER_BODY = struct.Struct("!Q?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """The ticket's oldest batch of this connection is over."""

    ticket: int
    is_broken: bool  # the library failed, so what it had begun may still be on its way


def pack_ask(ticket: int, region_id: int, writes: Sequence[Write]) -> bytes:
    return bytes((_ASK,)) + pack_frame(ticket, region_id, writes)


def pack_over(over: Over) -> bytes:
    return bytes((_OVER,)) + _OVER_BODY.pack(over.ticket, over.is_broken)


def read_message(sock: socket.socket) -> Frame | Over:
    """The sender's next word. Raises FrameError, PeerClosed, OSError."""
    (kind,) = read_exactly(sock, 1)
    if kind == _ASK:
        return read_frame(sock)
    if kind == _OVER:
        ticket, is_broken = _OVER_BODY.unpack(read_exactly(sock, _OVER_BODY.size))
        return Over(ticket=ticket, is_broken=is_broken)
    raise FrameError(f"a message of the unknown kind {kind}")
