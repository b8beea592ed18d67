"""The decode side of staging: lends out slots of its ring pool, scatters what arrives in them."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgpack
import torch

from runtime.kv.head_copies import head_copies
from runtime.kv.layout import KVLayout
from runtime.kv.memory import Memory, memory_of
from runtime.kv.ring import Claim, Ring
from runtime.kv.staging_copy import block_bytes
from runtime.transfer.base import POOL, STAGING, OnQuiet, TransferBackend, Window
from runtime.transfer.staging.messages import (
    MAGIC,
    Arrived,
    Done,
    Dropped,
    Grant,
    Want,
    pack,
    read_from_sender,
)
from runtime.transfer.wire.connections import Connections
from runtime.transfer.wire.frames import Frame, FrameError, Status, read_magic
from runtime.transfer.wire.grants import Grants, OutsideError

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class _Link:
    """One sender's connection. Grants are written by whoever frees a slot, so writes have a lock."""

    sock: socket.socket
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, message: Grant | Done) -> None:
        """Raises OSError. Does not wait: no sender has so much unread as fills a socket's buffer."""
        with self.lock:
            self.sock.sendall(pack(message))


@dataclass(slots=True, kw_only=True, eq=False)
class _Block:
    """A slot that was asked for, and has been granted when it has a ticket."""

    block_id: int
    link: _Link
    ticket: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    """The window that one slot is."""

    start: int
    end: int

    def covers(self, offset: int, num_bytes: int) -> bool:
        return num_bytes > 0 and self.start <= offset and offset + num_bytes <= self.end


class StagingReceiver:
    """Listens on its own port. Scatters on the threads of its connections, into pages handed to it."""

    def __init__(
        self,
        pool: Memory,
        layout: KVLayout,
        backend: TransferBackend,
        *,
        pool_bytes: int,
        slot_bytes: int,
        host: str,
        advertised_host: str,
    ) -> None:
        """pool: all bytes of the KV pool; the staging pool lies on its device.

        Raises RingError when the staging pool holds no slot.
        """
        self._copies = head_copies(pool, layout)
        self._layout = layout
        self._backend = backend
        self._advertised_host = advertised_host
        self._ring: Ring[_Link] = Ring(num_bytes=pool_bytes, slot_bytes=slot_bytes)
        self._memory = torch.empty(
            self._ring.num_slots * slot_bytes, dtype=torch.uint8, device=self._copies.device
        )
        backend.register(STAGING, memory_of(self._memory))
        self._blocks: dict[Claim[_Link], _Block] = {}
        self._lock = threading.Lock()  # of the ring and the blocks' tickets
        self._grants = Grants()
        self._connections = Connections(host, self._serve)

    def endpoint(self) -> bytes:
        packed = msgpack.packb((self._advertised_host, self._connections.port, self._ring.slot_bytes))
        assert packed is not None, "packb returns what it packed"
        return packed

    @property
    def num_free_slots(self) -> int:
        return self._ring.num_free

    @property
    def num_slots(self) -> int:
        return self._ring.num_slots

    def allow(self, ticket: int, window: Window) -> None:
        """Let blocks of the room be scattered into the window of the KV pool."""
        self._grants.allow(ticket, POOL, window)

    def revoke(self, ticket: int, on_quiet: OnQuiet) -> None:
        """As `TransferBackend.revoke`, for what is scattered."""
        self._grants.revoke(ticket, on_quiet)

    def close(self) -> None:
        self._connections.close()

    def _serve(self, sock: socket.socket) -> None:
        link, claims = _Link(sock=sock), {}
        read_magic(sock, MAGIC)
        try:
            while True:
                match read_from_sender(sock):
                    case Want(block_id=block_id):
                        if block_id in claims:
                            raise FrameError(f"block {block_id} is wanted twice")
                        claims[block_id] = self._claim(link, block_id)
                    case Dropped(block_id=block_id):
                        self._free(_find(claims, block_id))
                        del claims[block_id]
                    case Arrived() as arrived:
                        claim = _find(claims, arrived.block_id)
                        status = self._scatter(sock, claim, arrived)
                        self._free(claim)
                        del claims[arrived.block_id]
                        link.tell(Done(block_id=arrived.block_id, status=status))
        finally:
            for claim in claims.values():
                self._free(claim)

    def _claim(self, link: _Link, block_id: int) -> Claim[_Link]:
        with self._lock:
            claim, granted = self._ring.claim(link)
            self._blocks[claim] = _Block(block_id=block_id, link=link)
        self._announce(granted)
        return claim

    def _free(self, claim: Claim[_Link]) -> None:
        """Give the slot back as soon as nothing can land in it."""
        with self._lock:
            ticket = self._blocks[claim].ticket
            granted = self._release(claim) if ticket is None else []
        self._announce(granted)
        if ticket is not None:
            self._backend.revoke(ticket, lambda: self._on_quiet(claim))

    def _on_quiet(self, claim: Claim[_Link]) -> None:
        with self._lock:
            granted = self._release(claim)
        self._announce(granted)

    def _release(self, claim: Claim[_Link]) -> list[Claim[_Link]]:
        del self._blocks[claim]
        return self._ring.release(claim)

    def _announce(self, granted: Sequence[Claim[_Link]]) -> None:
        for claim in granted:
            ticket = secrets.randbits(63)
            with self._lock:
                block = self._blocks.get(claim)
                if block is None:
                    continue  # freed before anybody was told
                offset = self._ring.offset(claim)
                block.ticket = ticket
                window = _Slot(start=offset, end=offset + self._ring.slot_bytes)
                self._backend.allow(ticket, window, region_id=STAGING)
            with suppress(OSError):  # a sender that is gone: the thread of its link gives the slot back
                block.link.tell(Grant(block_id=block.block_id, ticket=ticket, offset=offset))

    def _scatter(self, sock: socket.socket, claim: Claim[_Link], arrived: Arrived) -> Status:
        size = block_bytes(self._layout, num_heads=arrived.num_heads, num_tokens=arrived.num_tokens)
        num_pages = self._layout.num_pages_for(arrived.num_tokens)
        is_sane = 0 < size <= self._ring.slot_bytes and len(arrived.pages) == num_pages
        if not is_sane or arrived.dst_head + arrived.num_heads > self._layout.num_kv_heads:
            raise FrameError(f"a block of {size} bytes for {len(arrived.pages)} pages")
        page_bytes = self._layout.page_bytes
        spans = tuple((page * page_bytes, page_bytes) for page in arrived.pages)  # in the first plane
        try:
            grant = self._grants.begin(sock, Frame(ticket=arrived.ticket, region_id=POOL, spans=spans))
        except OutsideError as error:
            _log.warning("refusing a staged block: %s", error)
            return Status.OUTSIDE
        if grant is None:
            return Status.NO_ROOM
        try:
            start = self._ring.offset(claim)
            heads = range(arrived.dst_head, arrived.dst_head + arrived.num_heads)
            block = self._memory[start : start + size]
            self._copies.scatter(block, arrived.pages, heads, num_tokens=arrived.num_tokens)
        finally:
            self._grants.end(sock, grant)
        return Status.DONE


def _find(claims: dict[int, Claim[_Link]], block_id: int) -> Claim[_Link]:
    if block_id not in claims:
        raise FrameError(f"block {block_id} was not wanted")
    return claims[block_id]
