"""What a room costs before any KV moves: the bootstrap server, the handshake, the memory.

    python benchmarks/rooms.py [--json FILE]

A prefill engine with SmolLM2 on this machine's CPUs; this process plays the decode side, with the real client
and control link. Rates of the bootstrap server's routes stand beside its `/health`, which does nothing; times
of the handshake beside a byte that goes to another process of this machine and back. About 40 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import queue
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from runtime.bootstrap.client import PrefillServer, find_prefill
from runtime.control.messages import PROTOCOL_VERSION, AbortDone, AbortRoom, Hello, Message, OpenRoom, Welcome
from runtime.control.network import ControlNetwork
from runtime.engine.ranks.ways import Endpoints
from runtime.transfer.plugins import load_backend

HOST = "127.0.0.1"
MODEL = "builtin:smollm2-135m-instruct"
NUM_LAYERS, NUM_KV_HEADS, HEAD_DIM = 30, 3, 64  # of that model
PAGE_SIZE, NUM_PAGES = 16, 64
START_LIMIT_S = 180.0
NUM_CONNECTIONS, NUM_REQUESTS, NUM_ROUNDS = 8, 4000, 3
NUM_HANDSHAKES, NUM_LINKS = 500, 50
NUM_ROOMS = 16_000  # the engine keeps 16,384 that wait for their requests
_SHAPE = "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
_ECHO = "import os\nwhile byte := os.read(0, 1): os.write(1, byte)"


class Decode:
    """A decode instance without an engine. A `LinkListener`."""

    def __init__(self) -> None:
        self.heard: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._network = ControlNetwork(self, heartbeat_interval_s=60.0)
        self._backend = load_backend("tcp")(host=HOST, advertised_host=HOST, stall_timeout_s=60.0)
        self._link_id = 0

    def greet(self, prefill: PrefillServer) -> None:
        """A link, and `Welcome` on it."""
        self._link_id = self._network.dial(prefill.rank_ip, prefill.rank_port)
        assert self.heard.get(timeout=20) is None, "the link is up"
        self.say(
            Hello(
                version=PROTOCOL_VERSION,
                backend="tcp",
                attn_tp_size=1,
                attn_dp_size=1,
                num_layers=NUM_LAYERS,
                num_pages=NUM_PAGES,
                page_size=PAGE_SIZE,
                num_kv_heads=NUM_KV_HEADS,
                head_dim=HEAD_DIM,
                dtype="float32",
                verify_kv=False,
                endpoints=(Endpoints(backend=self._backend.endpoint(), staging=None).pack(),),
            )
        )
        answer = self.heard.get(timeout=20)
        assert isinstance(answer, Welcome), answer

    def open(self, room: int) -> None:
        pages = tuple(range(NUM_PAGES))
        self.say(
            OpenRoom(room=room, ticket=room, attn_dp_rank=0, prompt_len=PAGE_SIZE * NUM_PAGES, pages=pages)
        )

    def abort(self, room: int) -> None:
        self.say(AbortRoom(room=room, ticket=room, reason="measured"))

    def wait_for_aborts(self, num_rooms: int) -> None:
        for _ in range(num_rooms):
            answer = self.heard.get(timeout=60)
            assert isinstance(answer, AbortDone), answer

    def say(self, message: Message) -> None:
        self._network.send(self._link_id, message)

    def close(self) -> None:
        self._network.close()
        self._backend.close()

    def on_up(self, link_id: int) -> None:
        self.heard.put(None)

    def on_message(self, link_id: int, message: Message) -> None:
        self.heard.put(message)

    def on_down(self, link_id: int, reason: str) -> None:
        pass


# --- The bootstrap server ----------------------------------------------------------------------------------


async def _ask(port: int, method: str, path: str, body: str, num_requests: int) -> None:
    """One after the other on one connection."""
    reader, writer = await asyncio.open_connection(HOST, port)
    request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    for _ in range(num_requests):
        writer.write(request.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.splitlines()[0], head
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None, head
        await reader.readexactly(int(length[1]))
    writer.close()


async def _ask_on_all(port: int, method: str, path: str, body: str) -> float:
    """Requests a second over all connections."""
    started_s = time.perf_counter()
    share = NUM_REQUESTS // NUM_CONNECTIONS
    await asyncio.gather(*(_ask(port, method, path, body, share) for _ in range(NUM_CONNECTIONS)))
    return NUM_REQUESTS / (time.perf_counter() - started_s)


def bootstrap_rates(port: int) -> dict[str, tuple[float, float]]:
    """Requests a second of each route, and as a share of `/health` in the same round."""
    routes = {
        "GET /health": ("GET", "/health", ""),
        "GET /route": ("GET", _SHAPE, ""),
        "POST /register_dp_rank": ("POST", "/register_dp_rank", '{"bootstrap_room": 7, "dp_rank": 0}'),
        "POST /query_dp_ranks": ("POST", "/query_dp_ranks", '{"bootstrap_rooms": [7, 8, 9]}'),
    }
    rounds = [
        {name: asyncio.run(_ask_on_all(port, *route)) for name, route in routes.items()}
        for _ in range(NUM_ROUNDS)
    ]
    return {
        name: (
            statistics.median(one[name] for one in rounds),
            statistics.median(one[name] / one["GET /health"] for one in rounds),
        )
        for name in routes
    }


# --- The handshake -----------------------------------------------------------------------------------------


def median_ms(act: Callable[[], object], num_times: int) -> float:
    times_s: list[float] = []
    for _ in range(num_times):
        started_s = time.perf_counter()
        act()
        times_s.append(time.perf_counter() - started_s)
    return 1000 * statistics.median(times_s)


def handshake_times_ms(bootstrap_port: int) -> dict[str, float]:
    stopped = threading.Event()

    def look_up() -> PrefillServer:
        return find_prefill(HOST, bootstrap_port, deadline_s=0.0, stopped=stopped)

    prefill, decode = look_up(), Decode()

    def greet() -> None:
        other = Decode()
        other.greet(prefill)
        other.close()

    def open_and_abort() -> None:
        decode.open(1)
        decode.abort(1)
        decode.wait_for_aborts(1)

    decode.greet(prefill)
    echo = subprocess.Popen(
        [sys.executable, "-c", _ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert echo.stdin is not None
    assert echo.stdout is not None
    to_echo, from_echo = echo.stdin, echo.stdout
    times_ms = {
        "a byte there and back": median_ms(lambda: (to_echo.write(b"x"), from_echo.read(1)), NUM_HANDSHAKES),
        "a room opened and aborted": median_ms(open_and_abort, NUM_HANDSHAKES),
        "look-up, once per prefill instance": median_ms(look_up, NUM_LINKS),
        "link and greeting, once per prefill instance": median_ms(greet, NUM_LINKS),
    }
    to_echo.close()
    echo.wait()
    decode.close()
    return times_ms


# --- The memory --------------------------------------------------------------------------------------------


def bytes_per_room(pid: int, bootstrap_port: int, http_port: int) -> float:
    """What the prefill engine grows by for each room that it is told of and nobody has asked it for."""
    decode = Decode()
    decode.greet(find_prefill(HOST, bootstrap_port, deadline_s=0.0, stopped=threading.Event()))
    before_bytes = resident_bytes(pid)
    rooms = range(1, 1 + NUM_ROOMS)
    for room in rooms:
        decode.open(room)
    while num_rooms(http_port) < NUM_ROOMS:
        time.sleep(0.05)
    grown_bytes = resident_bytes(pid) - before_bytes
    for room in rooms:
        decode.abort(room)
    decode.wait_for_aborts(NUM_ROOMS)
    decode.close()
    return grown_bytes / NUM_ROOMS


def resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmRSS:")))


def num_rooms(http_port: int) -> int:
    with urllib.request.urlopen(f"http://{HOST}:{http_port}/server_info", timeout=10) as answer:
        return json.load(answer)["stats"]["extra"]["num_rooms"]


# --- All together ------------------------------------------------------------------------------------------


def start_prefill(stack: ExitStack) -> tuple[int, int, int]:
    """Its pid, its bootstrap port and its HTTP port."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(2)]
    bootstrap_port, http_port = (each.getsockname()[1] for each in sockets)
    for each in sockets:
        each.close()
    argv = [sys.executable, "-m", "runtime.engine", "--model-path", MODEL, "--port", str(http_port)]
    argv += ["--disaggregation-mode", "prefill", "--disaggregation-bootstrap-port", str(bootstrap_port)]
    argv += ["--page-size", str(PAGE_SIZE), "--max-total-tokens", str(PAGE_SIZE * NUM_PAGES)]
    engine = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    stack.callback(engine.wait)
    stack.callback(engine.terminate)
    deadline_s = time.monotonic() + START_LIMIT_S
    while not is_ready(http_port):
        assert engine.poll() is None, "the engine ended"
        assert time.monotonic() < deadline_s, "the engine was not ready in time"
        time.sleep(0.2)
    return engine.pid, bootstrap_port, http_port


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    out: Path | None = parser.parse_args().json
    with ExitStack() as stack:
        pid, bootstrap_port, http_port = start_prefill(stack)
        rates = bootstrap_rates(bootstrap_port)
        times_ms = handshake_times_ms(bootstrap_port)
        room_bytes = bytes_per_room(pid, bootstrap_port, http_port)
    print("| bootstrap route | requests/s | of `/health` |\n|---|---|---|")
    for name, (rate, share) in rates.items():
        print(f"| {name} | {rate:,.0f} | {share:.2f} |")
    print("\n| handshake | ms |\n|---|---|")
    for name, time_ms in times_ms.items():
        print(f"| {name} | {time_ms:.3f} |")
    print(f"\n{NUM_ROOMS:,} open rooms of {NUM_PAGES} pages: {room_bytes:,.0f} bytes each in the engine.")
    if out is not None:
        found = {"rates": rates, "times_ms": times_ms, "bytes_per_room": room_bytes}
        out.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
