"""Ranks of two sides with real backends and pools, joined by staging."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator

import pytest
import torch

from runtime.kv.layout import KVLayout
from runtime.kv.page_runs import PageWindow
from runtime.kv.pool import KVPool
from runtime.kv.reshard import HeadSlice
from runtime.transfer.base import TransferBackend
from runtime.transfer.plugins import load_backend
from runtime.transfer.staging.receiver import StagingReceiver
from runtime.transfer.staging.sender import StagingSender

NUM_PAGES, PAGE_SIZE, HEAD_DIM, NUM_LAYERS = 24, 4, 8, 3


class Rank:
    """A pool and a backend; one of `sender` and `receiver` is opened on top."""

    def __init__(self, backend: TransferBackend, num_heads: int, seed: int) -> None:
        layout = KVLayout(
            num_layers=NUM_LAYERS,
            num_pages=NUM_PAGES,
            page_size=PAGE_SIZE,
            num_kv_heads=num_heads,
            head_dim=HEAD_DIM,
            dtype_bytes=2,
        )
        self.pool = KVPool(layout, device=torch.device("cpu"), dtype=torch.float16)
        self.pool.as_bytes().random_(0, 256, generator=torch.Generator().manual_seed(seed))
        self.backend = backend
        self.receiver: StagingReceiver | None = None
        self.sender: StagingSender | None = None

    @property
    def tokens(self) -> torch.Tensor:
        """[2 * L, slot of the pool, H, bytes of one head]"""
        layout = self.pool.layout
        shape = (2 * layout.num_layers, NUM_PAGES * PAGE_SIZE, layout.num_kv_heads, -1)
        return self.pool.as_bytes().view(shape)

    def receive(self, *, pool_bytes: int, slot_bytes: int) -> StagingReceiver:
        self.receiver = StagingReceiver(
            self.pool.memory(),
            self.pool.layout,
            self.backend,
            pool_bytes=pool_bytes,
            slot_bytes=slot_bytes,
            host="127.0.0.1",
            advertised_host="127.0.0.1",
        )
        return self.receiver

    def stage(self, *, buffer_bytes: int, slot_bytes: int, stall_timeout_s: float = 10.0) -> StagingSender:
        self.sender = StagingSender(
            self.pool.memory(),
            self.pool.layout,
            self.backend,
            buffer_bytes=buffer_bytes,
            slot_bytes=slot_bytes,
            stall_timeout_s=stall_timeout_s,
        )
        return self.sender

    def window(self, pages) -> PageWindow:
        return PageWindow(layout=self.pool.layout, pages=frozenset(pages))


class Way:
    """From a prefill rank to a decode rank."""

    def __init__(self, src: Rank, dst: Rank, heads: HeadSlice) -> None:
        assert src.sender is not None
        assert dst.receiver is not None
        self.plain = src.backend.connect(dst.backend.endpoint())
        self.staged = src.sender.connect(dst.receiver.endpoint(), self.plain, heads)

    def send(self, ticket: int, src_pages, dst_pages, **fields) -> queue.SimpleQueue[str | None]:
        answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.staged.send(ticket, src_pages, dst_pages, answers.put, **fields)
        return answers

    def close(self) -> None:
        self.staged.close()
        self.plain.close()
        self.staged.join(10)


@pytest.fixture(params=["tcp", "mooncake"])
def backend_name(request: pytest.FixtureRequest) -> str:
    """One that a sender can be cut off from, and one that it can't; each is slow enough to open."""
    return request.param


@pytest.fixture
def open_rank(backend_name: str) -> Iterator[Callable[..., Rank]]:
    ranks: list[Rank] = []

    def open_one(num_heads: int) -> Rank:
        opener = load_backend(backend_name)
        backend = opener(host="127.0.0.1", advertised_host="127.0.0.1", stall_timeout_s=10.0)
        ranks.append(Rank(backend, num_heads, seed=len(ranks)))
        return ranks[-1]

    yield open_one
    for rank in ranks:
        if rank.receiver is not None:
            rank.receiver.close()
        rank.backend.close()


@pytest.fixture
def join() -> Iterator[Callable[[Rank, Rank, HeadSlice], Way]]:
    ways: list[Way] = []

    def join_two(src: Rank, dst: Rank, heads: HeadSlice) -> Way:
        ways.append(Way(src, dst, heads))
        return ways[-1]

    yield join_two
    for way in ways:
        way.close()
