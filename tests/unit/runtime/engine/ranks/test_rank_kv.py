"""Ranks of a prefill and a decode engine in one process: over real sockets, each head arrives once."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgpack
import pytest
import torch

from runtime.engine.compute import Model
from runtime.engine.ranks.commands import (
    AllowAsked,
    ChecksumAsked,
    ConnectAsked,
    Disconnect,
    Revoke,
    SendPages,
)
from runtime.engine.ranks.kv import Movers, RankKV
from runtime.engine.ranks.shape import RankShape
from runtime.kv.checksum_table import find_damage, join_ranks
from runtime.kv.layout import KVLayout
from runtime.kv.pool import KVPool
from runtime.kv.reshard import heads_of
from runtime.transfer.base import POOL
from runtime.transfer.tcp import open_backend

_PAGE_SIZE, _HEAD_DIM, _LAYERS = 4, 8, 2
_SRC_PAGES, _DST_PAGES, _NUM_TOKENS = (5, 0, 1), (2, 9, 4), 10


@dataclass(frozen=True)
class Engine:
    """The ranks of one side; what they report, by any of them."""

    shape: RankShape
    pools: list[KVPool]
    ranks: list[RankKV]
    reports: queue.SimpleQueue[tuple[int, int, str | None]]

    def checksums(self, pages: Sequence[int]) -> list[tuple[int, ...]]:
        asked = ChecksumAsked(attn_dp_rank=0, pages=tuple(pages), num_tokens=_NUM_TOKENS)
        answers = [rank.checksums(asked) for rank in self.ranks[: self.shape.attn_tp_size]]
        return [tuple(msgpack.unpackb(answer)) for answer in answers]


@pytest.fixture
def open_engine() -> Iterator[Callable[..., Engine]]:
    """`open_engine(shape, num_kv_heads, num_pages)`; in its pools, copies of a head are equal."""
    opened: list[Engine] = []

    def open_one(shape: RankShape, num_kv_heads: int, num_pages: int) -> Engine:
        generator = torch.Generator().manual_seed(3)
        slots = (_LAYERS, 2, num_pages, _PAGE_SIZE, num_kv_heads, _HEAD_DIM)
        model_kv = torch.rand(slots, generator=generator)
        engine = Engine(shape, [], [], queue.SimpleQueue())
        opened.append(engine)
        for tp_rank in range(shape.tp_size):
            own = shape.at(tp_rank)
            heads = heads_of(own.attn_tp_rank, own.attn_tp_size, num_kv_heads)
            layout = KVLayout(
                num_layers=_LAYERS, num_pages=num_pages, page_size=_PAGE_SIZE,
                num_kv_heads=len(heads), head_dim=_HEAD_DIM, dtype_bytes=4,
            )  # fmt: skip
            pool = KVPool(layout, device=torch.device("cpu"), dtype=torch.float32)
            pool.tensor.copy_(model_kv[..., heads.start : heads.stop, :])
            backend = open_backend(host="127.0.0.1", advertised_host="127.0.0.1", stall_timeout_s=5.0)
            backend.register(POOL, pool.memory())
            model = Model(
                runner=None, sampler=None, allocators=(), layout=layout, num_kv_heads=num_kv_heads,
                pool=pool.memory(), vocab_size=1, context_len=1, eos_token_ids=frozenset(),
            )  # fmt: skip
            report = lambda *words: engine.reports.put(words)  # noqa: E731
            engine.pools.append(pool)
            engine.ranks.append(RankKV(model, own, Movers(backend=backend), report))
        return engine

    yield open_one
    for engine in opened:
        for rank in engine.ranks:
            rank.close()


def _connect(prefill: Engine, decode: Engine, num_pages: int) -> None:
    command = ConnectAsked(
        peer_id=1,
        attn_tp_size=decode.shape.attn_tp_size,
        attn_dp_size=decode.shape.attn_dp_size,
        num_pages=num_pages,
        endpoints=tuple(rank.describe() for rank in decode.ranks),
    )
    assert [rank.connect(command) for rank in prefill.ranks] == [""] * len(prefill.ranks)


def _send(prefill: Engine, decode: Engine, *, num_senders: int, dst_dp_rank: int = 0) -> list[str | None]:
    for rank in decode.ranks:
        rank.allow(AllowAsked(ticket=7, attn_dp_rank=dst_dp_rank, pages=_DST_PAGES))
    command = SendPages(
        report_id=3, peer_id=1, ticket=7, src_dp_rank=0, dst_dp_rank=dst_dp_rank,
        src_pages=_SRC_PAGES, dst_pages=_DST_PAGES,
    )  # fmt: skip
    for rank in prefill.ranks:
        rank.send(command)
    reports = [prefill.reports.get(timeout=10) for _ in range(num_senders)]
    assert prefill.reports.empty()
    assert {report_id for report_id, _, _ in reports} == {3}
    return [reason for _, _, reason in reports]


@pytest.mark.parametrize(
    ("prefill_tp", "decode_tp", "num_kv_heads", "num_senders"),
    [
        (1, 1, 4, 1),
        (2, 1, 4, 2),
        (1, 2, 4, 1),
        (4, 1, 4, 4),
        (4, 2, 4, 4),
        (2, 4, 2, 2),
        (4, 1, 2, 2),
        (2, 1, 1, 1),
    ],
)
def test_every_rank_gets_its_heads_and_keeps_its_other_pages(
    open_engine, prefill_tp, decode_tp, num_kv_heads, num_senders
):
    prefill = open_engine(RankShape(tp_size=prefill_tp), num_kv_heads, 8)
    decode = open_engine(RankShape(tp_size=decode_tp), num_kv_heads, 12)
    _connect(prefill, decode, 12)
    before = [pool.tensor.clone() for pool in decode.pools]
    table = join_ranks(prefill.checksums(_SRC_PAGES), num_kv_heads)
    assert find_damage(decode.checksums(_DST_PAGES), table, num_kv_heads) is not None
    assert _send(prefill, decode, num_senders=num_senders) == [None] * num_senders
    assert find_damage(decode.checksums(_DST_PAGES), table, num_kv_heads) is None
    others = [page for page in range(12) if page not in _DST_PAGES]
    for pool, was in zip(decode.pools, before, strict=True):
        assert torch.equal(pool.tensor[:, :, others], was[:, :, others])


def test_only_the_addressed_data_parallel_rank_takes_part(open_engine):
    prefill = open_engine(RankShape(tp_size=2), 4, 8)
    decode = open_engine(RankShape(tp_size=2, attn_dp_size=2), 4, 12)
    _connect(prefill, decode, 12)
    untouched = decode.pools[0].tensor.clone()
    assert _send(prefill, decode, num_senders=2, dst_dp_rank=1) == [None, None]
    assert torch.equal(decode.pools[0].tensor, untouched)
    assert not torch.equal(decode.pools[1].tensor, untouched)
    for rank in decode.ranks:
        rank.revoke(Revoke(report_id=9, ticket=7, attn_dp_rank=1))
    assert decode.reports.get(timeout=5) == (9, 0, None)
    assert decode.reports.empty()


def test_one_receiver_that_refuses_fails_the_send_of_every_rank_that_it_concerns(open_engine):
    prefill = open_engine(RankShape(tp_size=2), 4, 8)
    decode = open_engine(RankShape(tp_size=1), 4, 12)
    _connect(prefill, decode, 12)
    command = SendPages(
        report_id=1, peer_id=1, ticket=8, src_dp_rank=0, dst_dp_rank=0,
        src_pages=_SRC_PAGES, dst_pages=_DST_PAGES,
    )  # fmt: skip
    for rank in prefill.ranks:  # no ticket was allowed
        rank.send(command)
    reports = [prefill.reports.get(timeout=10) for _ in range(2)]
    assert all(num_bytes == 0 and reason for _, num_bytes, reason in reports)


def test_an_endpoint_that_cannot_be_read_is_an_answer_and_opens_nothing(open_engine):
    prefill = open_engine(RankShape(), 4, 8)
    command = ConnectAsked(peer_id=1, attn_tp_size=1, attn_dp_size=1, num_pages=12, endpoints=(b"nonsense",))
    assert prefill.ranks[0].connect(command)
    prefill.ranks[0].disconnect(Disconnect(peer_id=1))
