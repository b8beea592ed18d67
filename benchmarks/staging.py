"""Staging: gather and scatter against a plain copy; staged sends against per-token slices and equal splits.

`python benchmarks/staging.py [mooncake|nixl|tcp]`. TP4 to attention TP1: 16 layers, 8 KV heads of 128,
float16, pages of 64 tokens; each of the four senders has two heads. Equal means the same bytes as whole
pages, from one sender with all heads. All ranks are in this process, each with a backend of its own. Ways
take turns, and the median of the ratios counts. Prints tables in Markdown.
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
from runtime.kv.page_runs import PageWindow, join_runs, page_writes
from runtime.kv.pool import KVPool
from runtime.kv.reshard import HeadSlice, reshard
from runtime.kv.slice_writes import slice_writes
from runtime.kv.staging_copy import block_bytes, gather_heads, scatter_heads
from runtime.transfer.base import POOL, SendSession
from runtime.transfer.plugins import load_backend
from runtime.transfer.staging.receiver import StagingReceiver
from runtime.transfer.staging.sender import StagingSender

NUM_PAGES, PAGE_SIZE, NUM_ROUNDS = 64, 64, 5
REQUEST_PAGES = 1  # 64 tokens, so that 64 requests fit the pool
NUMS_REQUESTS = (1, 4, 16, 64)
SLICES_LIMIT_S = 20.0  # of one column


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
    """Gathering and scattering two heads of scattered pages on one thread, against a plain copy."""
    torch.set_num_threads(1)
    rank = Rank("tcp", 8)
    pages = torch.randperm(NUM_PAGES, generator=torch.Generator().manual_seed(0)).tolist()[:16]
    block = torch.zeros(16 * rank.page_bytes, dtype=torch.uint8)
    plain = torch.zeros_like(block)
    pool, heads = rank.pool.tensor, range(2, 4)
    print("| copy | MB/s | of a plain copy |\n|---|---|---|")
    for name, act in (
        ("gather", lambda: gather_heads(pool, pages, heads, block)),
        ("scatter", lambda: scatter_heads(block, pool, pages, heads)),
    ):
        rounds = [(seconds(lambda: plain.copy_(block)), seconds(act)) for _ in range(60)]
        ratio = statistics.median(one / two for one, two in rounds)
        speed = block.numel() / statistics.median(two for _, two in rounds) / 1e6
        print(f"| {name} | {speed:,.0f} | {ratio:.2f} |")
    rank.backend.close()


def compare_sends(name: str) -> None:
    receiver = Rank(name, 8)
    senders = [Rank(name, 2) for _ in range(4)]
    slot_bytes = 16 * receiver.page_bytes
    staging = StagingReceiver(
        receiver.pool.memory(),
        receiver.layout,
        receiver.backend,
        pool_bytes=16 * slot_bytes,
        slot_bytes=slot_bytes,
        host="127.0.0.1",
        advertised_host="127.0.0.1",
    )
    table = reshard(prefill_attn_tp=4, decode_attn_tp=1, num_kv_heads=8)
    ways = [open_way(senders[one.prefill_rank], receiver, staging, one, slot_bytes) for one in table.slices]
    whole = Rank(name, 8)
    equal = whole.backend.connect(receiver.backend.endpoint())
    print(f"\n{name}, requests of {REQUEST_PAGES * PAGE_SIZE} tokens:\n")
    print("| requests at once | equal MB/s | staged MB/s | of equal | slices MB/s | staged faster |")
    print("|---|---|---|---|---|---|")
    for num_requests in NUMS_REQUESTS:
        print_row(ways, whole, equal, num_requests)
    equal.close()
    whole.backend.close()
    for rank, _, session, staged in ways:
        staged.close()
        session.close()
        staged.join(10)
        rank.backend.close()
    staging.close()
    receiver.backend.close()


def print_row(ways, whole: Rank, equal: SendSession, num_requests: int) -> None:
    """One warm-up round first. Slices are measured less often where they take long."""
    staged, sliced = (partial(send_all, ways, num_requests, is_staged) for is_staged in (True, False))
    acts = (partial(send_whole, whole, equal, num_requests), staged, sliced)
    slices_s = [seconds(act) for act in acts][2]
    num_rounds = max(1, min(NUM_ROUNDS, int(SLICES_LIMIT_S / slices_s)))
    rounds = [tuple(seconds(act) for act in acts) for _ in range(num_rounds)]
    megabytes = num_requests * REQUEST_PAGES * PAGE_SIZE * whole.layout.token_bytes / 1e6
    speeds = [f"{megabytes / statistics.median(column):,.0f}" for column in zip(*rounds, strict=True)]
    of_equal = statistics.median(one / two for one, two, _ in rounds)
    faster = statistics.median(three / two for _, two, three in rounds)
    print(
        f"| {num_requests} | {speeds[0]} | {speeds[1]} | {of_equal:.2f} | {speeds[2]} | {faster:.1f} |",
        flush=True,
    )


def send_whole(whole: Rank, equal: SendSession, num_requests: int) -> None:
    """What a single sender with all heads does: runs of whole pages, plane by plane."""
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    for request in range(num_requests):
        pages = range(REQUEST_PAGES * request, REQUEST_PAGES * (request + 1))
        equal.send(1, page_writes(join_runs(pages, pages), src=whole.layout, dst=whole.layout), answers.put)
    wait_for(answers, num_requests)


def open_way(rank: Rank, receiver: Rank, staging: StagingReceiver, heads: HeadSlice, slot_bytes: int):
    sender = StagingSender(
        rank.pool.memory(),
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
    wait_for(answers, num_requests * len(ways))


def wait_for(answers: queue.SimpleQueue[str | None], num_answers: int) -> None:
    reasons = [answers.get() for _ in range(num_answers)]
    assert reasons == [None] * num_answers, reasons


if __name__ == "__main__":
    compare_copies()
    for each in sys.argv[1:] or ["mooncake", "nixl"]:
        compare_sends(each)
