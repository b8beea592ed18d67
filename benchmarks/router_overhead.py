"""What a router costs per request: the mini load balancer beside sglang-router and its Python `--mini-lb`.

Two nginx answer at once for prefill and decode, wrk is the client, everything runs on this machine's loopback
and shares its processors. The targets take turns for each concurrency and round, so that a noisy neighbour
meets all of them; medians over the rounds are shown. Ratios carry over to other machines, the numbers do not.

    apt-get install nginx-light wrk
    python benchmarks/router_overhead.py [--json FILE]

Takes about (targets x concurrencies x rounds x seconds): a minute and a half.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START_DEADLINE_S = 60.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

NGINX_CONF = """
worker_processes 1; daemon off; master_process off; pid {dir}/nginx.pid; error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 75; default_type application/json;
  client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location = /health {{ return 200 '{{}}'; }}
    location = /server_info {{ return 200 '{{"tp_size":1,"dp_size":1}}'; }}
    location = /model_info {{ return 200 '{{}}'; }}
    location / {{ return 200 '{{"text":" Paris.","meta_info":{{"prompt_tokens":5}}}}'; }}
  }}
}}
"""

WRK_SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"text":"The capital of France is","sampling_params":{"max_new_tokens":16,"temperature":0}}'
done = function(summary, latency, requests)
  local errors = summary.errors
  print(string.format("RESULT %d %d %d %d %d",
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    name: str
    pid: int
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one target at one concurrency."""

    target: str
    concurrency: int
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us_per_request: float  # of the target alone
    rss_mib: float
    num_errors: int


def main() -> int:
    args = _arguments()
    missing = [name for name in ("nginx", "wrk") if shutil.which(name) is None]
    if missing:
        print(f"error: {' and '.join(missing)} not found; apt-get install nginx-light wrk", file=sys.stderr)
        return 1
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        script = folder / "post.lua"
        script.write_text(WRK_SCRIPT)
        targets = start_targets(stack, folder)
        figures = measure_all(targets, script, args)
    print_table(figures)
    if args.json is not None:
        args.json.write_text(json.dumps(report(figures, args), indent=2) + "\n")
    return 0


def start_targets(stack: contextlib.ExitStack, folder: Path) -> list[Target]:
    """Two workers, then each router in front of them; all end with the stack."""
    prefill, decode = (stack.enter_context(nginx(folder / name)) for name in ("prefill", "decode"))
    workers = ["--prefill", prefill.url, "8998", "--decode", decode.url]
    sglang = ["-m", "sglang_router.launch_router", "--pd-disaggregation", *workers]
    metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
    commands = {
        "mini_lb": ["-m", "runtime.router", *workers, "--log-level", "warning"],
        "sglang-router": [*sglang, "--policy", "round_robin", *metrics],
        "sglang --mini-lb": [*sglang, "--mini-lb", "--policy", "random"],
    }
    routers = [stack.enter_context(router(name, argv, folder)) for name, argv in commands.items()]
    return [Target(name="nginx, no router", pid=decode.pid, url=decode.url), *routers]


def measure_all(targets: list[Target], script: Path, args: argparse.Namespace) -> list[Figures]:
    figures: list[Figures] = []
    for concurrency in args.concurrency:
        rounds: dict[str, list[Figures]] = {target.name: [] for target in targets}
        for _ in range(args.rounds):
            for target in targets:
                rounds[target.name].append(measure(target, script, concurrency, args.seconds))
        figures += [median(of_target) for of_target in rounds.values()]
    return figures


def measure(target: Target, script: Path, concurrency: int, seconds: int) -> Figures:
    argv = ["wrk", "-t1", f"-c{concurrency}", f"-d{seconds}s", "-s", str(script), f"{target.url}/generate"]
    cpu_before_s = cpu_s(target.pid)
    output = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=seconds + 30).stdout
    used_s = cpu_s(target.pid) - cpu_before_s
    result = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", output)
    assert result is not None, output
    num_requests, duration_us, p50_us, p99_us, num_errors = map(int, result.groups())
    return Figures(
        target=target.name,
        concurrency=concurrency,
        requests_per_s=num_requests / duration_us * 1e6,
        p50_ms=p50_us / 1000,
        p99_ms=p99_us / 1000,
        cpu_us_per_request=used_s / max(1, num_requests) * 1e6,
        rss_mib=rss_mib(target.pid),
        num_errors=num_errors,
    )


def median(rounds: list[Figures]) -> Figures:
    def of(field: str) -> float:
        return statistics.median(getattr(figures, field) for figures in rounds)

    return Figures(
        target=rounds[0].target,
        concurrency=rounds[0].concurrency,
        requests_per_s=of("requests_per_s"),
        p50_ms=of("p50_ms"),
        p99_ms=of("p99_ms"),
        cpu_us_per_request=of("cpu_us_per_request"),
        rss_mib=of("rss_mib"),
        num_errors=sum(figures.num_errors for figures in rounds),
    )


def print_table(figures: list[Figures]) -> None:
    python_rps = {row.concurrency: row.requests_per_s for row in figures if row.target == "sglang --mini-lb"}
    heads = ("req/s", "x", "p50 ms", "p99 ms", "CPU us", "RSS MiB", "errors")
    print(f"{'':18} {'c':>4} {{:>8}} {{:>5}} {{:>8}} {{:>8}} {{:>7}} {{:>8}} {{:>6}}".format(*heads))
    for row in figures:
        ratio = row.requests_per_s / python_rps[row.concurrency]
        print(
            f"{row.target:18} {row.concurrency:4} {row.requests_per_s:8.0f} {ratio:5.1f} {row.p50_ms:8.2f} "
            f"{row.p99_ms:8.2f} {row.cpu_us_per_request:7.0f} {row.rss_mib:8.0f} {row.num_errors:6}"
        )
    print("x: requests per second against sglang-router's Python --mini-lb; CPU: of the router, per request")


def report(figures: list[Figures], args: argparse.Namespace) -> dict[str, object]:
    packages = ("sglang-router", "uvicorn", "uvloop", "httptools")
    return {
        "benchmark": "router_overhead",
        "conditions": {
            "num_cpus": os.cpu_count(),
            "load_average_1min": os.getloadavg()[0],
            "python": platform.python_version(),
            "kernel": platform.release(),
            "seconds": args.seconds,
            "rounds": args.rounds,
            "versions": {name: importlib.metadata.version(name) for name in packages},
        },
        "figures": [asdict(row) for row in figures],
    }


@contextlib.contextmanager
def nginx(folder: Path) -> Iterator[Target]:
    folder.mkdir()
    port = free_port()
    conf = folder / "nginx.conf"
    conf.write_text(NGINX_CONF.format(dir=folder, port=port))
    with process(["nginx", "-c", str(conf), "-p", str(folder)], folder / "log") as pid:
        url = f"http://127.0.0.1:{port}"
        wait_until_up(f"{url}/health", folder / "log")
        yield Target(name=folder.name, pid=pid, url=url)


@contextlib.contextmanager
def router(name: str, argv: list[str], folder: Path) -> Iterator[Target]:
    port = free_port()
    log = folder / f"{port}.log"
    with process([sys.executable, *argv, "--host", "127.0.0.1", "--port", str(port)], log) as pid:
        url = f"http://127.0.0.1:{port}"
        wait_until_up(f"{url}/health", log)
        time.sleep(2)  # until it has looked at its workers
        yield Target(name=name, pid=pid, url=url)


@contextlib.contextmanager
def process(argv: list[str], log: Path) -> Iterator[int]:
    with log.open("wb") as output:
        started = subprocess.Popen(argv, cwd=ROOT, stdout=output, stderr=output)
    try:
        yield started.pid
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def wait_until_up(url: str, log: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise SystemExit(f"error: no answer from {url} in {START_DEADLINE_S:g} s:\n{log.read_text()}")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def cpu_s(pid: int) -> float:
    """User and system time of the process so far, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_mib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) / 1024 if found else 0.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what a router costs per request.")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--seconds", type=int, default=2, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the figures and their conditions"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
