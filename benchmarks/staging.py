"""Staging: gather and scatter against a plain copy of the same bytes, staged sends against per-token slices.

`python benchmarks/staging.py [mooncake|nixl|tcp]`. TP4 to attention TP1: 16 layers, 8 KV heads of 128,
float16, pages of 64 tokens; each of the four senders has two heads. All ranks are in this process, each with
a backend of its own. Ways take turns, and the median of the ratios counts.
"""

from __future__ import annotations

import os
import queue
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

os.environ.setdefault("UCX_TLS", "tcp,self")

import torch

from runtime.kv.layout import KVLayout
from runtime.kv.page_runs import PageWindow
from runtime.kv.pool import KVPool
from runtime.kv.reshard import HeadSlice, reshard
from runtime.kv.slice_writes import slice_writes
from runtime.kv.staging_copy import block_bytes, gather_heads, scatter_heads
from runtime.transfer.base import POOL
from runtime.transfer.plugins import load_backend
from runtime.transfer.staging.receiver import StagingReceiver
from runtime.transfer.staging.sender import StagingSender

NUM_PAGES, PAGE_SIZE, NUM_ROUNDS = 64, 64, 3
REQUEST_PAGES = 4  # 256 tokens


class Rank:
    def __init__(self, name: str, num_heads: int) -> None:
        layout = KVLayout(
            num_layers=16,
            num_pages=NUM_PAGES,
            page_size=PAGE_SIZE,
            num_kv_heads=num_heads,
            head_dim=128,
            dtype_bytes=2,
        )
        self.layout = layout
        self.pool = KVPool(layout, device=torch.device("cpu"), dtype=torch.float16)
        self.pool.as_bytes().zero_()
        self.backend = load_backend(name)(host="127.0.0.1", advertised_host="127.0.0.1", stall_timeout_s=60.0)
        self.backend.register(POOL, self.pool.memory())
        self.page_bytes = block_bytes(layout, num_heads=2, num_tokens=PAGE_SIZE)


def seconds(act: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    act()
    return time.perf_counter() - start_s


def compare_copies() -> None:
    """MB/s of gathering and of scattering two heads of scattered pages, and the share of a plain copy's."""
    rank = Rank("tcp", 8)
    pages = torch.randperm(NUM_PAGES, generator=torch.Generator().manual_seed(0)).tolist()[:16]
    size = 16 * rank.page_bytes
    block, plain, heads = (
        torch.zeros(size, dtype=torch.uint8),
        torch.zeros(size, dtype=torch.uint8),
        range(2, 4),
    )
    for name, act in (
        ("gather", lambda: gather_heads(rank.pool.tensor, pages, heads, block)),
        ("scatter", lambda: scatter_heads(block, rank.pool.tensor, pages, heads)),
    ):
        rounds = [(seconds(lambda: plain.copy_(block)), seconds(act)) for _ in range(20 * NUM_ROUNDS)]
        ratio = statistics.median(one / two for one, two in rounds)
        speed = size / statistics.median(two for _, two in rounds) / 1e6
        print(f"{name}: {speed:.0f} MB/s, {ratio:.2f} of a copy")
    rank.backend.close()


def compare_sends(name: str) -> None:
    receiver = Rank(name, 8)
    senders = [Rank(name, 2) for _ in range(4)]
    slot_bytes = 16 * receiver.page_bytes
    staging = StagingReceiver(
        receiver.pool.tensor,
        receiver.layout,
        receiver.backend,
        pool_bytes=16 * slot_bytes,
        slot_bytes=slot_bytes,
        host="127.0.0.1",
        advertised_host="127.0.0.1",
    )
    table = reshard(prefill_attn_tp=4, decode_attn_tp=1, num_kv_heads=8)
    ways = [open_way(senders[one.prefill_rank], receiver, staging, one, slot_bytes) for one in table.slices]
    print(f"{name}: requests of 256 tokens, staged MB/s, per slice MB/s, times as fast")
    for num_requests in (1, 8):
        rounds = [
            tuple(seconds(partial(send_all, ways, num_requests, is_staged)) for is_staged in (True, False))
            for _ in range(NUM_ROUNDS)
        ]
        megabytes = num_requests * REQUEST_PAGES * PAGE_SIZE * receiver.layout.token_bytes / 1e6
        staged, sliced = (megabytes / statistics.median(column) for column in zip(*rounds, strict=True))
        ratio = statistics.median(two / one for one, two in rounds)
        print(f"{num_requests} {staged:.0f} {sliced:.0f} {ratio:.1f}")
    for rank, _, session, staged in ways:
        staged.close()
        session.close()
        staged.join(10)
        rank.backend.close()
    staging.close()
    receiver.backend.close()


def open_way(rank: Rank, receiver: Rank, staging: StagingReceiver, heads: HeadSlice, slot_bytes: int):
    sender = StagingSender(
        rank.pool.tensor,
        rank.layout,
        rank.backend,
        buffer_bytes=4 * slot_bytes,
        slot_bytes=slot_bytes,
        stall_timeout_s=60.0,
    )
    window = PageWindow(layout=receiver.layout, pages=frozenset(range(NUM_PAGES)))
    receiver.backend.allow(1, window)
    staging.allow(1, window)
    session = rank.backend.connect(receiver.backend.endpoint())
    return rank, (heads, receiver.layout), session, sender.connect(staging.endpoint(), session, heads)


def send_all(ways, num_requests: int, is_staged: bool) -> None:
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    for request in range(num_requests):
        pages = range(REQUEST_PAGES * request, REQUEST_PAGES * (request + 1))
        for rank, (heads, layout), session, staged in ways:
            if is_staged:
                staged.send(1, pages, pages, answers.put)
            else:
                session.send(
                    1, slice_writes(pages, pages, src=rank.layout, dst=layout, heads=heads), answers.put
                )
    reasons = [answers.get() for _ in range(num_requests * len(ways))]
    assert reasons == [None] * len(reasons), reasons


if __name__ == "__main__":
    compare_copies()
    for each in sys.argv[1:] or ["mooncake", "nixl"]:
        compare_sends(each)
