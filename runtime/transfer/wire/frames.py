"""Frames of the transfer backends' own sockets: what a sender wants to write, and the receiver's answer.

    frame:  ticket u64, region_id u32, num_writes u32, num_writes x (dst_offset u64, num_bytes u64)
    answer: ticket u64, status u8

Integers are big-endian. What stands before and after a frame, a backend says in its own files.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from runtime.kv.page_runs import Write

MAX_WRITES = 4096  # per frame: bounds what a header may make the receiver allocate to 64 KiB

_HEADER = struct.Struct("!QII")
_ANSWER = struct.Struct("!QB")
_MAX_BUFFERS = 512  # per system call; IOV_MAX is 1024


class FrameError(Exception):
    """The peer does not speak this protocol, or wants to write where it may not."""


class PeerClosed(Exception):
    """The connection ended between two frames or within one."""


class Status(IntEnum):
    DONE = 0  # written or, where the answer comes before the write, granted
    NO_ROOM = 1  # the ticket is not, or no longer, allowed
    OUTSIDE = 2  # the ticket is for other bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What a sender wants to write: `spans` are (dst_offset, num_bytes)."""

    ticket: int
    region_id: int
    spans: tuple[tuple[int, int], ...]


def pack_frame(ticket: int, region_id: int, writes: Sequence[Write]) -> bytes:
    numbers = [number for write in writes for number in (write.dst_offset, write.num_bytes)]
    return _HEADER.pack(ticket, region_id, len(writes)) + struct.pack(f"!{len(numbers)}Q", *numbers)


def read_frame(sock: socket.socket) -> Frame:
    ticket, region_id, num_writes = _HEADER.unpack(read_exactly(sock, _HEADER.size))
    if not 1 <= num_writes <= MAX_WRITES:
        raise FrameError(f"a frame with {num_writes} writes, wanted 1 to {MAX_WRITES}")
    numbers = struct.unpack(f"!{2 * num_writes}Q", read_exactly(sock, 16 * num_writes))
    spans = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    return Frame(ticket=ticket, region_id=region_id, spans=spans)


def send_answer(sock: socket.socket, ticket: int, status: Status) -> None:
    sock.sendall(_ANSWER.pack(ticket, status))


def read_answer(sock: socket.socket) -> tuple[int, Status]:
    ticket, status = _ANSWER.unpack(read_exactly(sock, _ANSWER.size))
    try:
        return ticket, Status(status)
    except ValueError as error:
        raise FrameError(f"an answer with the unknown status {status}") from error


def read_magic(sock: socket.socket, magic: bytes) -> None:
    if read_exactly(sock, len(magic)) != magic:
        raise FrameError("the connection does not begin as a KV connection")


def read_exactly(sock: socket.socket, num_bytes: int) -> bytearray:
    """For headers only: the caller bounds `num_bytes`."""
    buffer = bytearray(num_bytes)
    receive_into(sock, [memoryview(buffer)])
    return buffer


def send_buffers(sock: socket.socket, buffers: Sequence[memoryview]) -> None:
    """Send the buffers one after the other, without copying them together first."""
    pending = list(buffers)
    first = 0
    while first < len(pending):
        first = _skip(pending, first, sock.sendmsg(pending[first : first + _MAX_BUFFERS]))


def receive_into(sock: socket.socket, buffers: Sequence[memoryview]) -> None:
    """Fill the buffers in order, straight from the socket."""
    pending = list(buffers)
    first = 0
    while first < len(pending):
        num_bytes, _, _, _ = sock.recvmsg_into(pending[first : first + _MAX_BUFFERS])
        if num_bytes == 0:
            raise PeerClosed
        first = _skip(pending, first, num_bytes)


def cut(sock: socket.socket) -> None:
    """End both directions, so that a thread blocked in the socket returns; that thread closes it."""
    with contextlib.suppress(OSError):  # the peer had closed it before us
        sock.shutdown(socket.SHUT_RDWR)


def _skip(pending: list[memoryview], first: int, num_bytes: int) -> int:
    """Move past `num_bytes`, and shorten the buffer in which they end. Returns the new first index."""
    while num_bytes and num_bytes >= len(pending[first]):
        num_bytes -= len(pending[first])
        first += 1
    if num_bytes:
        pending[first] = pending[first][num_bytes:]
    return first
