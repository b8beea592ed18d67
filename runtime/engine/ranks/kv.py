"""One rank's part in moving KV: its pool, its transfer backend, its sessions with ranks of other engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgpack

from runtime.control.messages import MAX_TEXT_LEN
from runtime.engine.compute import Model
from runtime.engine.ranks.commands import (
    AllowAsked,
    CancelSends,
    ChecksumAsked,
    ConnectAsked,
    Disconnect,
    Revoke,
    SendPages,
)
from runtime.engine.ranks.shape import RankShape
from runtime.kv.checksums import head_checksums
from runtime.kv.layout import KVLayout
from runtime.kv.page_runs import PageWindow, Write, join_runs, page_writes
from runtime.kv.reshard import HeadSlice, ReshardTable, reshard
from runtime.kv.slice_writes import slice_writes
from runtime.transfer.base import Completion, SendSession, TransferBackend, TransferError

Report = Callable[[int, int, str | None], object]
"""Takes the id of a report, the bytes moved, and why it failed, or None. Called once, from any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """From this rank to one rank of a decode engine."""

    session: SendSession
    heads: HeadSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class _Peer:
    """A decode engine as one prefill rank sees it."""

    layout: KVLayout  # of one of its ranks
    is_whole: bool  # pages travel as they lie
    ways: tuple[tuple[_Way, ...], ...]  # by attn_dp_rank; empty where other ranks hold the heads, too


class RankKV:
    """What this rank does of the commands about KV. Called by the thread that runs the rank."""

    def __init__(self, model: Model, shape: RankShape, backend: TransferBackend, report: Report) -> None:
        self._model = model
        self._shape = shape
        self._backend = backend
        self._report = report
        self._peers: dict[int, _Peer] = {}

    def describe(self) -> bytes:
        return self._backend.endpoint()

    def allow(self, command: AllowAsked) -> None:
        if command.attn_dp_rank == self._shape.attn_dp_rank:
            window = PageWindow(layout=self._model.layout, pages=frozenset(command.pages))
            self._backend.allow(command.ticket, window)

    def revoke(self, command: Revoke) -> None:
        if command.attn_dp_rank == self._shape.attn_dp_rank:
            self._backend.revoke(command.ticket, lambda: self._report(command.report_id, 0, None))

    def connect(self, command: ConnectAsked) -> str:
        """Open the sessions that this rank will need. Gives why that can't be, or nothing."""
        table = table_to(command, self._model, self._shape)
        slices = table.out_of(self._shape.attn_tp_rank)
        ways: list[tuple[_Way, ...]] = []
        try:
            for dp_rank in range(command.attn_dp_size):
                ways.append(
                    tuple(
                        _Way(session=self._backend.connect(self._endpoint(command, dp_rank, one)), heads=one)
                        for one in slices
                    )
                )
        except TransferError as error:
            _close(ways)
            return str(error)[:MAX_TEXT_LEN]
        layout = replace(self._model.layout, num_pages=command.num_pages, num_kv_heads=table.decode_heads)
        self._peers[command.peer_id] = _Peer(layout=layout, is_whole=table.is_whole, ways=tuple(ways))
        return ""

    def disconnect(self, command: Disconnect) -> None:
        peer = self._peers.pop(command.peer_id, None)
        if peer is not None:
            _close(peer.ways)

    def send(self, command: SendPages) -> None:
        """Queue this rank's heads of the pages for each rank that wants them; one report for all."""
        peer = self._peers.get(command.peer_id)
        if command.src_dp_rank != self._shape.attn_dp_rank or peer is None:
            return
        ways = peer.ways[command.dst_dp_rank]
        if not ways:
            return
        writes = [self._writes(command, peer, way.heads) for way in ways]
        num_bytes = sum(write.num_bytes for some in writes for write in some)
        on_done = _when_all(
            len(ways), lambda reason: self._report(command.report_id, 0 if reason else num_bytes, reason)
        )
        for way, some in zip(ways, writes, strict=True):
            way.session.send(command.ticket, some, on_done)

    def cancel(self, command: CancelSends) -> None:
        peer = self._peers.get(command.peer_id)
        for ways in peer.ways if peer is not None else ():
            for way in ways:
                way.session.cancel(command.ticket)

    def checksums(self, command: ChecksumAsked) -> bytes:
        if command.attn_dp_rank != self._shape.attn_dp_rank:
            return b""
        model = self._model
        return (
            msgpack.packb(head_checksums(model.pool, model.layout, command.pages, command.num_tokens)) or b""
        )

    def close(self) -> None:
        self._backend.close()

    def _endpoint(self, command: ConnectAsked, dp_rank: int, one: HeadSlice) -> bytes:
        return command.endpoints[dp_rank * command.attn_tp_size + one.decode_rank]

    def _writes(self, command: SendPages, peer: _Peer, heads: HeadSlice) -> list[Write]:
        ours = self._model.layout
        if peer.is_whole:
            runs = join_runs(command.src_pages, command.dst_pages)
            return page_writes(runs, src=ours, dst=peer.layout)
        return slice_writes(command.src_pages, command.dst_pages, src=ours, dst=peer.layout, heads=heads)


def table_to(peer: ConnectAsked, model: Model, shape: RankShape) -> ReshardTable:
    """Who of this engine sends which heads to whom of that one. Raises ReshardError."""
    return reshard(
        prefill_attn_tp=shape.attn_tp_size,
        decode_attn_tp=peer.attn_tp_size,
        num_kv_heads=model.num_kv_heads,
        kind=model.kind,
    )


def _close(ways: list[tuple[_Way, ...]] | tuple[tuple[_Way, ...], ...]) -> None:
    for some in ways:
        for way in some:
            way.session.close()


def _when_all(num: int, on_all: Completion) -> Completion:
    """A completion to be called `num` times, from any threads; the last call passes on the first reason."""
    reasons: list[str | None] = []
    lock = threading.Lock()

    def on_one(reason: str | None) -> None:
        with lock:
            reasons.append(reason)
            is_last = len(reasons) == num
        if is_last:
            on_all(next((one for one in reasons if one is not None), None))

    return on_one
