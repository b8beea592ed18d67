"""All ranks of an engine, as its leader's engine thread sees them: one model, and one place for KV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgpack
from torch import Tensor

from runtime.engine.compute import Chunk, Model, Runner
from runtime.engine.ranks.comm import Comm
from runtime.engine.ranks.commands import (
    COMMANDS,
    AllowAsked,
    Asked,
    CancelSends,
    ChecksumAsked,
    ConnectAsked,
    DescribeAsked,
    Disconnect,
    Revoke,
    SendPages,
    Step,
    Told,
)
from runtime.engine.ranks.kv import table_to
from runtime.engine.ranks.rank import Rank
from runtime.engine.ranks.reports import OnLost, Reports
from runtime.engine.ranks.shape import RankShape
from runtime.transfer.base import Completion, TransferError


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCopy:
    """Pages of one room, from an attention-DP rank here to one of the decode engine."""

    ticket: int
    src_dp_rank: int
    dst_dp_rank: int
    src_pages: tuple[int, ...]
    dst_pages: tuple[int, ...]


class RankGroup:
    """Tells every rank each command, then does the leader's own part. On one thread at a time."""

    def __init__(self, comm: Comm, rank: Rank) -> None:
        self._comm = comm
        self._rank = rank

    def tell(self, command: Told) -> None:
        self._spread(command)
        self._rank.do(command)

    def ask(self, command: Asked) -> list[bytes]:
        """Everybody's answer, by rank."""
        self._spread(command)
        return self._comm.gather(self._rank.answer(command))

    def tell_others(self, command: Told) -> None:
        self._spread(command)

    def _spread(self, command: Told | Asked) -> None:
        if self._comm.size > 1:
            self._comm.broadcast(COMMANDS.pack(command))


class GroupRunner:
    """The model of all ranks as a `Runner`.

    A step that fails on one of them leaves the others waiting for it: then `on_lost` ends the engine.
    """

    def __init__(self, runner: Runner, group: RankGroup, on_lost: OnLost) -> None:
        self._runner = runner
        self._group = group
        self._on_lost = on_lost

    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        try:
            self._group.tell_others(Step(chunks=tuple(chunks)))
            return self._runner.forward(chunks)
        except RuntimeError as error:
            self._on_lost(f"a step over all ranks failed: {error}")
            raise


class GroupKV:
    """The KV of all ranks, as a role moves it."""

    def __init__(self, group: RankGroup, reports: Reports, model: Model, shape: RankShape) -> None:
        self._group = group
        self._reports = reports
        self._model = model
        self._shape = shape
        self._num_senders: dict[int, int] = {}  # by peer: ranks of one attention group that send to it

    @property
    def shape(self) -> RankShape:
        return self._shape

    def endpoints(self) -> tuple[bytes, ...]:
        """How senders reach each rank, by tp_rank."""
        return tuple(self._group.ask(DescribeAsked()))

    def allow(self, ticket: int, *, attn_dp_rank: int, pages: tuple[int, ...]) -> None:
        """On the return, every rank takes writes to these pages."""
        self._group.ask(AllowAsked(ticket=ticket, attn_dp_rank=attn_dp_rank, pages=pages))

    def revoke(self, ticket: int, *, attn_dp_rank: int, on_quiet: Callable[[], object]) -> None:
        """Let nothing more in. `on_quiet`, from any thread: no byte of this ticket lands any more."""
        report_id = self._reports.expect(self._shape.attn_tp_size, lambda _: on_quiet())
        self._group.tell(Revoke(report_id=report_id, ticket=ticket, attn_dp_rank=attn_dp_rank))

    def connect(self, peer: ConnectAsked) -> None:
        """Get every rank ready to send to a decode engine. Raises TransferError."""
        wanted = peer.attn_tp_size * peer.attn_dp_size
        if len(peer.endpoints) != wanted:
            raise TransferError(f"{wanted} ranks have {len(peer.endpoints)} endpoints")
        table = table_to(peer, self._model, self._shape)
        faults = [answer.decode() for answer in self._group.ask(peer) if answer]
        if faults:
            self._group.tell(Disconnect(peer_id=peer.peer_id))
            raise TransferError(faults[0])
        self._num_senders[peer.peer_id] = len({one.prefill_rank for one in table.slices})

    def disconnect(self, peer_id: int) -> None:
        """Sends that are not applied yet end with a reason."""
        if self._num_senders.pop(peer_id, None) is not None:
            self._group.tell(Disconnect(peer_id=peer_id))

    def send(self, peer_id: int, copy: PageCopy, on_done: Completion) -> None:
        """Copy the pages to the peer; `on_done` when the parts of all ranks are applied, or have failed."""
        num_senders = self._num_senders.get(peer_id)
        if num_senders is None:
            on_done("the decode instance is gone")
            return
        report_id = self._reports.expect(num_senders, on_done)
        self._group.tell(
            SendPages(
                report_id=report_id,
                peer_id=peer_id,
                ticket=copy.ticket,
                src_dp_rank=copy.src_dp_rank,
                dst_dp_rank=copy.dst_dp_rank,
                src_pages=copy.src_pages,
                dst_pages=copy.dst_pages,
            )
        )

    def cancel(self, peer_id: int, ticket: int) -> None:
        """Drop the ticket's sends that have not begun; each still gets its `on_done`."""
        if peer_id in self._num_senders:
            self._group.tell(CancelSends(peer_id=peer_id, ticket=ticket))

    def checksums(
        self, *, attn_dp_rank: int, pages: tuple[int, ...], num_tokens: int
    ) -> list[tuple[int, ...]]:
        """Per rank of one attention group, the CRC-32 of each layer and head that it holds."""
        asked = ChecksumAsked(attn_dp_rank=attn_dp_rank, pages=pages, num_tokens=num_tokens)
        first = attn_dp_rank * self._shape.attn_tp_size
        answers = self._group.ask(asked)[first : first + self._shape.attn_tp_size]
        return [tuple(msgpack.unpackb(answer, use_list=False)) for answer in answers]

    def num_reports(self) -> int:
        """Answers of ranks that are still to come."""
        return self._reports.num_expected

    def num_bytes_sent(self) -> int:
        return self._reports.num_bytes
