"""How pages get from one prefill rank to one decode rank: whole, staged, or head by head."""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

from runtime.kv.layout import KVLayout
from runtime.kv.page_runs import join_runs, page_writes
from runtime.kv.reshard import HeadSlice
from runtime.kv.slice_writes import slice_writes
from runtime.kv.staging_copy import block_bytes
from runtime.transfer.base import Completion, SendSession, TransferBackend, TransferError
from runtime.transfer.staging.sender import StagingSender
from runtime.transfer.staging.session import StagedSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """How a decode rank is reached: its backend's endpoint and, where it has one, its staging pool's."""

    backend: bytes
    staging: bytes | None

    def pack(self) -> bytes:
        packed = msgpack.packb((self.backend, self.staging))
        assert packed is not None, "packb returns what it packed"
        return packed

    @classmethod
    def unpack(cls, packed: bytes) -> Endpoints:
        """Raises TransferError."""
        try:
            backend, staging = msgpack.unpackb(packed)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise TransferError(f"not the endpoints of a rank: {packed!r:.80}") from error
        if not isinstance(backend, bytes) or not isinstance(staging, bytes | None):
            raise TransferError(f"not the endpoints of a rank: {packed!r:.80}")
        return cls(backend=backend, staging=staging)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """From this rank to one rank of a decode engine."""

    src: KVLayout
    dst: KVLayout
    heads: HeadSlice
    is_whole: bool  # pages travel as they lie
    session: SendSession
    staged: StagedSession | None

    def num_bytes(self, num_pages: int) -> int:
        return block_bytes(
            self.src, num_heads=self.heads.num_heads, num_tokens=num_pages * self.src.page_size
        )

    def send(
        self, ticket: int, src_pages: tuple[int, ...], dst_pages: tuple[int, ...], on_done: Completion
    ) -> None:
        """Queue this way's heads of the pages; `on_done` when they lie in the receiver's."""
        if self.is_whole:
            writes = page_writes(join_runs(src_pages, dst_pages), src=self.src, dst=self.dst)
        elif self.staged is not None:
            self.staged.send(ticket, src_pages, dst_pages, on_done)
            return
        else:
            writes = slice_writes(src_pages, dst_pages, src=self.src, dst=self.dst, heads=self.heads)
        self.session.send(ticket, writes, on_done)

    def cancel(self, ticket: int) -> None:
        self.session.cancel(ticket)
        if self.staged is not None:
            self.staged.cancel(ticket)

    def close(self) -> None:
        if self.staged is not None:
            self.staged.close()
        self.session.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOpener:
    """What all ways of a prefill rank to one decode engine have in common."""

    backend: TransferBackend
    staging: StagingSender | None
    src: KVLayout
    dst: KVLayout
    is_whole: bool

    def open(self, packed: bytes, heads: HeadSlice) -> Way:
        """Raises TransferError."""
        endpoints = Endpoints.unpack(packed)
        session = self.backend.connect(endpoints.backend)
        staged = None
        if self.staging is not None and endpoints.staging is not None and not self.is_whole:
            try:
                staged = self.staging.connect(endpoints.staging, session, heads)
            except TransferError:
                session.close()
                raise
        return Way(
            src=self.src,
            dst=self.dst,
            heads=heads,
            is_whole=self.is_whole,
            session=session,
            staged=staged,
        )
