"""KV from four attention ranks of 2 heads to one rank of 8, between two processes on one device.

    python benchmarks/gpu/staged_transfer.py [--device cuda:0] [--backend nixl]... [--json FILE]

16 layers, head 128, bfloat16, pages of 64, requests of 1,024 tokens. Staged and head by head, beside one
sender that has all heads and sends whole pages. From the first send to the last completion, the median of
several rounds that take turns; head by head, 131,072 writes a request, is measured less often.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from runtime.kv.layout import KVLayout
from runtime.kv.page_runs import PageWindow, join_runs, page_writes
from runtime.kv.pool import KVPool
from runtime.kv.reshard import reshard
from runtime.kv.slice_writes import slice_writes
from runtime.kv.staging_copy import block_bytes
from runtime.transfer.base import POOL, BackendOptions, TransferBackend
from runtime.transfer.plugins import load_backend
from runtime.transfer.staging.receiver import StagingReceiver
from runtime.transfer.staging.sender import StagingSender

PAGE_SIZE = 64
REQUEST_PAGES = 16
NUMS_REQUESTS = (1, 4, 16, 64)
NUM_PAGES = REQUEST_PAGES * max(NUMS_REQUESTS)
NUM_ROUNDS = 7
SLICES_NUM_REQUESTS = (1, 4)  # and one round
TICKET = 1


@dataclass(frozen=True, kw_only=True)
class Row:
    backend: str
    num_requests: int
    equal_mb_s: float
    staged_mb_s: float
    staged_of_equal: float
    slices_mb_s: float | None
    staged_over_slices: float | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--backend", action="append", choices=["tcp", "nixl", "mooncake"])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = [row for name in args.backend or ["nixl", "mooncake"] for row in measure(name, args.device)]
    result = {"device": args.device, "rows": [asdict(row) for row in rows]}
    print(json.dumps(result, indent=1))
    if args.json is not None:
        args.json.write_text(json.dumps(result))


class Side:
    """A rank: its pool on the device, registered with a backend of its own."""

    def __init__(self, name: str, num_heads: int, device: str) -> None:
        self.layout = KVLayout(
            num_layers=16,
            num_pages=NUM_PAGES,
            page_size=PAGE_SIZE,
            num_kv_heads=num_heads,
            head_dim=128,
            dtype_bytes=2,
        )
        self.pool = KVPool(self.layout, device=torch.device(device), dtype=torch.bfloat16)
        self.pool.as_bytes().fill_(num_heads)
        self.backend: TransferBackend = load_backend(name)(
            host="127.0.0.1",
            advertised_host="127.0.0.1",
            stall_timeout_s=60.0,
            options=BackendOptions(),
        )
        self.backend.register(POOL, self.pool.memory())

    @property
    def slot_bytes(self) -> int:
        """A staged block: one request's slice of two heads."""
        return block_bytes(self.layout, num_heads=2, num_tokens=REQUEST_PAGES * PAGE_SIZE)


def receive(name: str, device: str, pipe: Connection) -> None:
    side = Side(name, 8, device)
    staging = StagingReceiver(
        side.pool.memory(),
        side.layout,
        side.backend,
        pool_bytes=16 * side.slot_bytes,
        slot_bytes=side.slot_bytes,
        host="127.0.0.1",
        advertised_host="127.0.0.1",
    )
    window = PageWindow(layout=side.layout, pages=frozenset(range(NUM_PAGES)))
    side.backend.allow(TICKET, window)
    staging.allow(TICKET, window)
    pipe.send((side.backend.endpoint(), staging.endpoint()))
    while (wanted := pipe.recv()) is not None:
        pipe.send(bool((side.pool.as_bytes() == wanted).all()))
        side.pool.as_bytes().zero_()
        if device != "cpu":
            torch.cuda.synchronize()
    staging.close()
    side.backend.close()


def measure(name: str, device: str) -> list[Row]:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=receive, args=(name, device, theirs), daemon=True)
    process.start()
    endpoint, staging = ours.recv()
    senders, whole = [Side(name, 2, device) for _ in range(4)], Side(name, 8, device)
    if device != "cpu":
        torch.cuda.synchronize()
    equal = whole.backend.connect(endpoint)
    receiver = whole.layout
    table = reshard(prefill_attn_tp=4, decode_attn_tp=1, num_kv_heads=8)
    ways = []
    for one in table.slices:
        side = senders[one.prefill_rank]
        stager = StagingSender(
            side.pool.memory(),
            side.layout,
            side.backend,
            buffer_bytes=4 * side.slot_bytes,
            slot_bytes=side.slot_bytes,
            stall_timeout_s=60.0,
        )
        session = side.backend.connect(endpoint)
        ways.append((side.layout, one, session, stager.connect(staging, session, one)))

    def send_equal(pages: range, answer: Callable[[str | None], object]) -> None:
        equal.send(TICKET, page_writes(join_runs(pages, pages), src=receiver, dst=receiver), answer)

    def send_staged(pages: range, answer: Callable[[str | None], object]) -> None:
        for *_, staged in ways:
            staged.send(TICKET, pages, pages, answer)

    def send_slices(pages: range, answer: Callable[[str | None], object]) -> None:
        for layout, heads, session, _ in ways:
            session.send(TICKET, slice_writes(pages, pages, src=layout, dst=receiver, heads=heads), answer)

    rows = []
    for num_requests in NUMS_REQUESTS:
        acts = (
            partial(run, send_equal, num_requests, num_requests),
            partial(run, send_staged, num_requests, num_requests * len(ways)),
        )
        for act in acts:
            act()
        rounds = [tuple(act() for act in acts) for _ in range(NUM_ROUNDS)]
        equal_s, staged_s = (statistics.median(column) for column in zip(*rounds, strict=True))
        slices_s = None
        if num_requests in SLICES_NUM_REQUESTS:
            slices_s = run(send_slices, num_requests, num_requests * len(ways))
        megabytes = num_requests * REQUEST_PAGES * PAGE_SIZE * receiver.token_bytes / 1e6
        rows.append(
            Row(
                backend=name,
                num_requests=num_requests,
                equal_mb_s=round(megabytes / equal_s),
                staged_mb_s=round(megabytes / staged_s),
                staged_of_equal=round(statistics.median(one / two for one, two in rounds), 2),
                slices_mb_s=None if slices_s is None else round(megabytes / slices_s, 1),
                staged_over_slices=None if slices_s is None else round(slices_s / staged_s, 1),
            )
        )
    run(send_staged, max(NUMS_REQUESTS), max(NUMS_REQUESTS) * len(ways))
    ours.send(2)  # every byte of the pool comes from a pool of two heads
    assert ours.recv(), f"{name}: what was staged is not what lies there"
    ours.send(None)
    for _, _, session, staged in ways:
        staged.close()
        session.close()
        staged.join(10)
    for side in (*senders, whole):
        side.backend.close()
    process.join(20)
    return rows


def run(
    send: Callable[[range, Callable[[str | None], object]], None], num_requests: int, num_answers: int
) -> float:
    """Seconds until all is there."""
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    began = time.perf_counter()
    for request in range(num_requests):
        send(range(REQUEST_PAGES * request, REQUEST_PAGES * (request + 1)), answers.put)
    reasons = [answers.get() for _ in range(num_answers)]
    elapsed_s = time.perf_counter() - began
    assert reasons == [None] * num_answers, reasons
    return elapsed_s


if __name__ == "__main__":
    main()
