"""Time to the first token: router, prefill, transfer and decode against one unified engine.

    python benchmarks/first_token.py [--rounds 7] [--json FILE]

SmolLM2 on this machine's CPUs, one request at a time, streamed. The engines of both shapes get the same
threads, so the difference is what disaggregation adds: two more HTTP hops, the handshake of the room, the
pages of the last chunk, one more step of the scheduler.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

PROMPT_LENS = (1, 32, 128, 512, 1500)
MODEL = "builtin:smollm2-135m-instruct"
START_LIMIT_S = 180.0


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start(stack: ExitStack, argv: list[str], *, port: int, ready_path: str) -> None:
    """Start a server and wait until it serves; the stack ends it."""
    process = subprocess.Popen([sys.executable, "-m", *argv], stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{ready_path}", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise TimeoutError(f"{argv[0]} was not ready within {START_LIMIT_S:g} s")


def first_token_s(port: int, prompt: list[int]) -> float:
    """Seconds from the request to the first event of the stream."""
    sampling = {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True}
    body = json.dumps({"input_ids": prompt, "sampling_params": sampling, "stream": True})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    began = time.perf_counter()
    connection.request("POST", "/generate", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    line = response.readline()
    elapsed = time.perf_counter() - began
    if not line.startswith(b"data:"):
        raise RuntimeError(f"no event but {line!r}")
    response.read()
    connection.close()
    return elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    unified, prefill, bootstrap, decode, router = free_ports(5)
    engine = ["runtime.engine", "--model-path", MODEL, "--log-level", "error"]
    with ExitStack() as stack:
        start(stack, [*engine, "--port", str(unified)], port=unified, ready_path="/health")
        apart = [*engine, "--disaggregation-bootstrap-port", str(bootstrap), "--disaggregation-mode"]
        start(stack, [*apart, "prefill", "--port", str(prefill)], port=prefill, ready_path="/health")
        start(stack, [*apart, "decode", "--port", str(decode)], port=decode, ready_path="/health")
        urls = [
            "--prefill",
            f"http://127.0.0.1:{prefill}",
            str(bootstrap),
            "--decode",
            f"http://127.0.0.1:{decode}",
        ]
        start(stack, ["runtime.router", "--port", str(router), *urls], port=router, ready_path="/readiness")
        figures = []
        print(f"{'prompt':>7} {'unified':>10} {'apart':>10} {'more':>9}  ratio")
        for length in PROMPT_LENS:
            times: dict[int, list[float]] = {unified: [], router: []}
            for number in range(arguments.rounds + 1):
                for port, seen in times.items():  # taking turns, so that noise hits both
                    seen.append(first_token_s(port, [1 + (number * 31 + i) % 40_000 for i in range(length)]))
            one, two = (statistics.median(seen[1:]) for seen in times.values())
            figures.append({"prompt_len": length, "unified_s": one, "apart_s": two})
            columns = f"{1e3 * one:7.1f} ms {1e3 * two:7.1f} ms {1e3 * (two - one):6.1f} ms"
            print(f"{length:>7} {columns}  {two / one:.3f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
