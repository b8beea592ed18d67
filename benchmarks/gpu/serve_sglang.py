"""Real SGLang, one prefill and one decode instance on one GPU, started, proven, restarted and ended by pdctl.

    python benchmarks/gpu/serve_sglang.py --model FOLDER --python SGLANG_PYTHON [--backend nixl]
        [--env NAME=VALUE]... [--arg FLAG=VALUE]... [--answers FILE] [--json FILE]

For each backend: `pdctl up topologies/h200_1p1d.yaml`, 20 prompts through the real router, compared token for
token with one undisaggregated server; `pdctl restart decode-0` while requests come; `pdctl down`, and what is
left of processes, ports and GPU memory. `--arg` and `--env` go to every server.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOPOLOGY = ROOT / "topologies" / "h200_1p1d.yaml"
NAME = "h200-1p1d"
PORTS = (30000, 8998, 30100, 8000)
ROUTER = "http://127.0.0.1:8000"
UNIFIED_PORT = 30900
NUM_PROMPTS = 20
NUM_TOKENS = 32
START_LIMIT_S = 300.0
COMMAND_LIMIT_S = 500.0


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How servers are started on this machine."""

    python: str
    model: str
    env: Mapping[str, str]
    args: Mapping[str, str]

    def sets(self, backend: str) -> list[str]:
        sets = [f"transfer.backend={backend}", f"router.python={self.python}"]
        sets += [f"defaults.args.{name}={value}" for name, value in self.args.items()]
        for name, value in self.env.items():
            sets += [f"defaults.env.{name}={json.dumps(value)}", f"router.env.{name}={json.dumps(value)}"]
        return [word for each in sets for word in ("--set", each)]

    def pdctl(self, *words: str) -> tuple[float, subprocess.CompletedProcess[str]]:
        """Seconds, and the finished command."""
        environ = {**os.environ, "SGLANG_PYTHON": self.python, "SGLANG_MODEL": self.model}
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pdctl", *words],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
        return time.monotonic() - began, done


def prompts() -> list[str]:
    """From a few tokens to some hundred, all different."""
    facts = "The prefill server computes the keys and values of a prompt, and the decode server generates. "
    return [f"Question {number}: " + facts * (number % 6) + "In short," for number in range(NUM_PROMPTS)]


def ask(base: str, prompt: str, *, limit_s: float = 60.0) -> dict:
    body = {
        "text": prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": NUM_TOKENS, "ignore_eos": True},
    }
    request = urllib.request.Request(
        f"{base}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=limit_s) as answer:
        found = json.load(answer)
    return {"text": found["text"], "output_ids": found.get("output_ids")}


def wait_until(is_true: Callable[[], bool], *, limit_s: float, what: str) -> None:
    deadline = time.monotonic() + limit_s
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} within {limit_s:g} s")
        time.sleep(0.5)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def gpu_processes() -> dict[int, int]:
    """MiB of GPU memory by pid, as the driver says."""
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    rows = [line.split(",") for line in lines if line.strip()]
    return {int(pid): int(used) if used.strip().isdigit() else -1 for pid, used in rows}


def gpu_used_mib() -> int:
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0])


def free_ports_of(ports: Sequence[int]) -> list[int]:
    """Those that can be bound."""
    free = []
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            free.append(port)
    return free


def unified_answers(setting: Setting, log: Path) -> dict:
    """What one plain server says, and how long it took to serve."""
    argv = [setting.python, "-m", "sglang.launch_server", "--model-path", setting.model]
    argv += ["--host", "127.0.0.1", "--port", str(UNIFIED_PORT), "--mem-fraction-static", "0.4"]
    for name, value in setting.args.items():
        argv += [f"--{name}"] if value == "true" else [f"--{name}", value]
    base = f"http://127.0.0.1:{UNIFIED_PORT}"
    began = time.monotonic()
    with log.open("wb") as output:
        server = subprocess.Popen(
            argv, env={**os.environ, **setting.env}, stdout=output, stderr=output, start_new_session=True
        )
        try:
            wait_until(
                lambda: answers(f"{base}/health") or server.poll() is not None,
                limit_s=START_LIMIT_S,
                what="one plain server did not serve",
            )
            if server.poll() is not None:
                raise RuntimeError(log.read_text(errors="replace")[-4000:])
            ready_s = time.monotonic() - began
            return {"ready_s": ready_s, "answers": [ask(base, prompt) for prompt in prompts()]}
        finally:
            os.killpg(server.pid, 9)
            server.wait()


def expected_answers(setting: Setting, kept: Path | None) -> dict:
    if kept is not None and kept.exists():
        return json.loads(kept.read_text())
    with tempfile.TemporaryDirectory() as folder:
        found = unified_answers(setting, Path(folder) / "unified.log")
    if kept is not None:
        kept.write_text(json.dumps(found))
    return found


@dataclass
class Load:
    """Requests one after the other, from a thread, until told to stop."""

    num_ok: int = 0
    failures: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join(90)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                ask(ROUTER, prompts()[1], limit_s=30)
            except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
                self.failures.append(str(error))
                time.sleep(0.5)
            else:
                self.num_ok += 1


def serve(setting: Setting, backend: str, expected: list[dict]) -> dict:
    """One deployment from `up` to `down`."""
    found: dict = {"backend": backend, "gpu_used_before_mib": gpu_used_mib()}
    up_s, up = setting.pdctl("up", str(TOPOLOGY), *setting.sets(backend))
    found["up"] = {"seconds": up_s, "code": up.returncode, "said": (up.stdout + up.stderr)[-4000:]}
    try:
        if up.returncode == 0:
            found |= _while_serving(setting, expected)
    finally:
        down_s, down = setting.pdctl("down", NAME)
        found["down"] = {
            "seconds": down_s,
            "code": down.returncode,
            "said": (down.stdout + down.stderr)[-2000:],
        }
    time.sleep(1)
    found["left"] = {
        "gpu_processes": gpu_processes(),
        "gpu_used_mib": gpu_used_mib(),
        "ports_taken": sorted(set(PORTS) - set(free_ports_of(PORTS))),
    }
    return found


def _while_serving(setting: Setting, expected: list[dict]) -> dict:
    got = [ask(ROUTER, prompt) for prompt in prompts()]
    _, status = setting.pdctl("status", NAME, "--json")
    _, screen = setting.pdctl("status", NAME)
    memory = gpu_processes()
    load = Load()
    load.start()
    restart_s, restart = setting.pdctl("restart", f"{NAME}/decode-0")
    num_ok_at_restart = load.num_ok
    time.sleep(3)
    load.stop()
    again = [ask(ROUTER, prompt) for prompt in prompts()[:5]]
    return {
        "num_equal": sum(one == other for one, other in zip(got, expected, strict=True)),
        "num_prompts": len(expected),
        "status": json.loads(status.stdout or "null"),
        "status_screen": screen.stdout,
        "gpu_processes": memory,
        "restart": {
            "seconds": restart_s,
            "code": restart.returncode,
            "said": (restart.stdout + restart.stderr)[-2000:],
            "requests_ok_meanwhile": num_ok_at_restart,
            "requests_failed_meanwhile": len(load.failures),
            "failures": sorted(set(load.failures))[:5],
            "requests_ok_after": load.num_ok - num_ok_at_restart,
            "num_equal_after": sum(one == other for one, other in zip(again, expected, strict=False)),
        },
    }


def pairs(words: Sequence[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--backend", action="append", choices=("nixl", "mooncake_tcp"))
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--arg", action="append", default=[], metavar="FLAG=VALUE")
    parser.add_argument(
        "--answers", type=Path, help="the plain server's answers: read if there, else written"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    setting = Setting(
        python=options.python, model=options.model, env=pairs(options.env), args=pairs(options.arg)
    )
    results: dict = {"date": time.strftime("%Y-%m-%d"), "model": Path(options.model).name, "served": []}
    unified = expected_answers(setting, options.answers)
    results["unified_ready_s"] = unified["ready_s"]
    for backend in options.backend or ("nixl", "mooncake_tcp"):
        served = serve(setting, backend, unified["answers"])
        results["served"].append(served)
        print(json.dumps(served, indent=1), flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
