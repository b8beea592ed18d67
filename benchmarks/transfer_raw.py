"""Our sender against a bare call of the same library: MB/s for blocks of 4 KB to 256 MB, over loopback.

`python benchmarks/transfer_raw.py [mooncake|nixl]`. The receiver is a process of its own. For each size, as
many blocks as make 256 MB at most (and 64 blocks at most) go out in one send, or in one bare batch; ways take
turns, and the median of the ratios counts. Prints tables in Markdown.
"""

from __future__ import annotations

import ctypes
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("UCX_TLS", "tcp,self")

from runtime.kv.page_runs import Write
from runtime.transfer.base import POOL
from runtime.transfer.one_sided.fabric import Copy
from runtime.transfer.plugins import load_backend

REGION_BYTES = 256 << 20
SIZES = [4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
NUM_ROUNDS = 7


class Everywhere:
    def covers(self, offset: int, num_bytes: int) -> bool:
        return True


def open_side(name: str):
    backend = load_backend(name)(host="127.0.0.1", advertised_host="127.0.0.1", stall_timeout_s=60.0)
    memory = bytearray(REGION_BYTES)
    backend.register(POOL, memoryview(memory))
    return backend, memory


def receive(name: str) -> None:
    backend, memory = open_side(name)
    backend.allow(1, Everywhere())
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    sys.stdout.write(f"{backend.endpoint().hex()} {address} {backend.fabric.describe().hex()}\n")
    sys.stdout.flush()
    if name == "nixl":  # the gate knows when the library needs a turn; a bare call has no gate
        threading.Thread(target=keep_turning, args=(backend.fabric,), daemon=True).start()
    sys.stdin.read()


def keep_turning(fabric) -> None:
    while True:
        fabric.take_turn()
        time.sleep(20e-6)


def bare_mooncake(backend, memory: bytearray, remote: int, session: str) -> Callable[[Sequence[Write]], None]:
    """The library's own blocking call."""
    engine, local = backend.fabric.engine, ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def send(writes: Sequence[Write]) -> None:
        src = [local + write.src_offset for write in writes]
        dst = [remote + write.dst_offset for write in writes]
        assert engine.batch_transfer_sync_write(session, src, dst, [one.num_bytes for one in writes]) == 0

    return send


def bare_nixl(
    backend, memory: bytearray, remote: int, description: bytes
) -> Callable[[Sequence[Write]], None]:
    """A transfer, and a loop that asks for its end."""
    peer, local = backend.fabric.open(description), ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def send(writes: Sequence[Write]) -> None:
        flight = peer.post([Copy(local + one[0], remote + one[1], one[2]) for one in writes])
        while not flight.is_applied():
            pass

    return send


def measure(send: Callable[[Sequence[Write]], None], writes: Sequence[Write]) -> float:
    start_s = time.perf_counter()
    send(writes)
    return sum(write.num_bytes for write in writes) / (time.perf_counter() - start_s) / 1e6


def main(name: str) -> None:
    peer = subprocess.Popen(
        [sys.executable, str(Path(__file__)), name, "receive"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert peer.stdout is not None
    endpoint, address, description = peer.stdout.readline().split()
    backend, memory = open_side(name)
    session = backend.connect(bytes.fromhex(endpoint))
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def ours(writes: Sequence[Write]) -> None:
        session.send(1, writes, answers.put)
        reason = answers.get()
        assert reason is None, reason

    opened = bytes.fromhex(description)
    bare = (
        bare_mooncake(backend, memory, int(address), opened.decode())
        if name == "mooncake"
        else bare_nixl(backend, memory, int(address), opened)
    )
    print(f"\n{name}:\n\n| block | blocks | bare MB/s | ours MB/s | ratio |\n|---|---|---|---|---|")
    for size in SIZES:
        writes = [Write(n * size, n * size, size) for n in range(min(64, REGION_BYTES // size))]
        rounds = [(measure(bare, writes), measure(ours, writes)) for _ in range(NUM_ROUNDS)]
        ratio = statistics.median(two / one for one, two in rounds)
        one, two = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"| {size >> 10:,} KiB | {len(writes)} | {one:,.0f} | {two:,.0f} | {ratio:.2f} |", flush=True)
    backend.close()
    peer.communicate()


if __name__ == "__main__":
    if sys.argv[2:] == ["receive"]:
        receive(sys.argv[1])
    else:
        for each in sys.argv[1:] or ["mooncake", "nixl"]:
            main(each)
