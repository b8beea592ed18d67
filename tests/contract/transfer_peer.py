"""One side of a transfer as a process of its own: `transfer_peer.py BACKEND receive`, or `send ENDPOINT`.

A receiver allows ticket 1 everywhere; a sender writes the whole region under ticket 1 over and over, until a
write fails. What is there to know goes to stdout line by line; both end with their stdin.
"""

from __future__ import annotations

import sys
import threading

from runtime.kv.page_runs import Write
from runtime.transfer.base import POOL
from runtime.transfer.plugins import load_backend

REGION_BYTES = 8 << 20


class Everywhere:
    def covers(self, offset: int, num_bytes: int) -> bool:
        return True


def main(name: str, role: str, endpoint: str = "") -> None:
    backend = load_backend(name)(host="127.0.0.1", advertised_host="127.0.0.1", stall_timeout_s=60.0)
    memory = bytearray(b"\x07" * REGION_BYTES)
    backend.register(POOL, memoryview(memory))
    if role == "receive":
        backend.allow(1, Everywhere())
        say(backend.endpoint().hex())
    else:
        session = backend.connect(bytes.fromhex(endpoint))
        under_way = threading.Semaphore(4)

        def on_done(reason: str | None) -> None:
            say(reason or "applied")
            if reason is None:
                under_way.release()

        def keep_sending() -> None:
            while under_way.acquire():
                session.send(1, [Write(0, 0, REGION_BYTES)], on_done)

        threading.Thread(target=keep_sending, daemon=True).start()
    sys.stdin.read()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
