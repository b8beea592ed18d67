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
from runtime.engine.ranks.ways import Endpoints, Way, WayOpener
from runtime.kv.checksums import head_checksums
from runtime.kv.page_runs import PageWindow
from runtime.kv.reshard import HeadSlice, ReshardTable, reshard
from runtime.transfer.base import Completion, TransferBackend, TransferError
from runtime.transfer.staging.receiver import StagingReceiver
from runtime.transfer.staging.sender import StagingSender

Report = Callable[[int, int, str | None], object]
"""Takes the id of a report, the bytes moved, and why it failed, or None. Called once, from any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movers:
    """What a rank moves KV with. Staging is None where it is off or never needed, or of the other side."""

    backend: TransferBackend
    sender: StagingSender | None = None  # of a prefill rank
    receiver: StagingReceiver | None = None  # of a decode rank


class RankKV:
    """What this rank does of the commands about KV. Called by the thread that runs the rank."""

    def __init__(self, model: Model, shape: RankShape, movers: Movers, report: Report) -> None:
        self._model = model
        self._shape = shape
        self._backend = movers.backend
        self._sender = movers.sender
        self._receiver = movers.receiver
        self._report = report
        self._peers: dict[int, list[tuple[Way, ...]]] = {}  # by peer and attn_dp_rank

    def describe(self) -> bytes:
        staging = self._receiver.endpoint() if self._receiver is not None else None
        return Endpoints(backend=self._backend.endpoint(), staging=staging).pack()

    def allow(self, command: AllowAsked) -> None:
        if command.attn_dp_rank == self._shape.attn_dp_rank:
            window = PageWindow(layout=self._model.layout, pages=frozenset(command.pages))
            self._backend.allow(command.ticket, window)
            if self._receiver is not None:
                self._receiver.allow(command.ticket, window)

    def revoke(self, command: Revoke) -> None:
        if command.attn_dp_rank != self._shape.attn_dp_rank:
            return

        def on_quiet() -> None:
            self._report(command.report_id, 0, None)

        if self._receiver is None:
            self._backend.revoke(command.ticket, on_quiet)
        else:  # quiet is what both have left alone
            self._receiver.revoke(command.ticket, lambda: self._backend.revoke(command.ticket, on_quiet))

    def connect(self, command: ConnectAsked) -> str:
        """Open the sessions that this rank will need. Gives why that can't be, or nothing."""
        table = table_to(command, self._model, self._shape)
        slices = table.out_of(self._shape.attn_tp_rank)
        ours = self._model.layout
        opener = WayOpener(
            backend=self._backend,
            staging=self._sender,
            src=ours,
            dst=replace(ours, num_pages=command.num_pages, num_kv_heads=table.decode_heads),
            is_whole=table.is_whole,
        )
        ways: list[tuple[Way, ...]] = []
        try:
            for dp_rank in range(command.attn_dp_size):
                ways.append(tuple(opener.open(_endpoint(command, dp_rank, one), one) for one in slices))
        except TransferError as error:
            _close(ways)
            return str(error)[:MAX_TEXT_LEN]
        self._peers[command.peer_id] = ways
        return ""

    def disconnect(self, command: Disconnect) -> None:
        _close(self._peers.pop(command.peer_id, []))

    def send(self, command: SendPages) -> None:
        """Queue this rank's heads of the pages for each rank that wants them; one report for all."""
        peer = self._peers.get(command.peer_id)
        if command.src_dp_rank != self._shape.attn_dp_rank or peer is None:
            return
        ways = peer[command.dst_dp_rank]
        if not ways:
            return  # other ranks hold the heads, too
        num_bytes = sum(way.num_bytes(len(command.src_pages)) for way in ways)
        on_done = _when_all(
            len(ways), lambda reason: self._report(command.report_id, 0 if reason else num_bytes, reason)
        )
        for way in ways:
            way.send(command.ticket, command.src_pages, command.dst_pages, on_done)

    def cancel(self, command: CancelSends) -> None:
        for ways in self._peers.get(command.peer_id, ()):
            for way in ways:
                way.cancel(command.ticket)

    def checksums(self, command: ChecksumAsked) -> bytes:
        if command.attn_dp_rank != self._shape.attn_dp_rank:
            return b""
        model = self._model
        return (
            msgpack.packb(head_checksums(model.pool, model.layout, command.pages, command.num_tokens)) or b""
        )

    def close(self) -> None:
        for ways in self._peers.values():
            _close(ways)
        if self._receiver is not None:
            self._receiver.close()
        self._backend.close()


def table_to(peer: ConnectAsked, model: Model, shape: RankShape) -> ReshardTable:
    """Who of this engine sends which heads to whom of that one. Raises ReshardError."""
    return reshard(
        prefill_attn_tp=shape.attn_tp_size,
        decode_attn_tp=peer.attn_tp_size,
        num_kv_heads=model.num_kv_heads,
    )


def _endpoint(command: ConnectAsked, dp_rank: int, one: HeadSlice) -> bytes:
    return command.endpoints[dp_rank * command.attn_tp_size + one.decode_rank]


def _close(ways: list[tuple[Way, ...]]) -> None:
    for some in ways:
        for way in some:
            way.close()


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
