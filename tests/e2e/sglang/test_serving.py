"""Released SGLang and its router serve what `pdctl up` starts, and its tokens are those of one plain server.

One deployment for all tests of this file, in their order: starting SGLang takes longest. What rules refuse
is forced through, by commands taken from plans, to see it fail as `pdctl explain` says.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
TINY_MODEL = ROOT / "tests" / "testbed" / "sglang_cpu" / "tiny_model.py"
TOPOLOGY = ROOT / "topologies" / "sglang_cpu_1p1d.yaml"
NAME = "sglang-cpu-1p1d"
PROMPTS = (
    "The capital of France is",
    "x",
    "Prefill writes the keys and values that decode reads. " * 6,
)
NUM_TOKENS = 24
READY_S = 240.0


@dataclass
class Desk:
    """`pdctl` as people run it, on ports that were free, and processes started by hand beside it."""

    folder: Path
    environ: dict[str, str]
    ports: dict[str, int]
    by_hand: list[subprocess.Popen] = field(default_factory=list)

    def pdctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pdctl", *words],
            env=self.environ,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
        )

    def sets(self, *more: str) -> list[str]:
        ports = self.ports
        sets = (
            f"prefill.port={ports['prefill']}",
            f"prefill.bootstrap_port={ports['bootstrap']}",
            f"decode.port={ports['decode']}",
            f"router.port={ports['router']}",
            f"router.metrics_port={ports['metrics']}",
            *more,
        )
        return [word for each in sets for word in ("--set", each)]

    def up(self, *more: str) -> None:
        up = self.pdctl("up", str(TOPOLOGY), *self.sets(*more))
        assert up.returncode == 0, up.stderr

    def commands(self, *more: str) -> dict[str, dict]:
        """argv and environment of every process, by id, as `plan` shows them."""
        plan = self.pdctl("plan", str(TOPOLOGY), *self.sets(*more), "--json")
        assert plan.returncode == 0, plan.stderr
        return {process["id"]: process for process in json.loads(plan.stdout)["processes"]}

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                argv,
                env={**self.environ, **env},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.by_hand.append(process)
        return process

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def end_by_hand(self) -> None:
        for process in self.by_hand:
            for member in session_of(process.pid):
                with_signal(member, signal.SIGKILL)
            process.wait()
        self.by_hand.clear()


@pytest.fixture(scope="module")
def desk(testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("serving")
    subprocess.run([sys.executable, TINY_MODEL, folder / "model"], check=True, capture_output=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PDCTL_", "SGL"))}
    environ |= {
        "PDCTL_STATE_DIR": str(folder / "state"),
        "SGLANG_PYTHON": str(testbed.python),
        "SGLANG_MODEL": str(folder / "model"),
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
    }
    desk = Desk(folder=folder, environ=environ, ports=free_ports())
    yield desk
    desk.end_by_hand()
    desk.pdctl("down", NAME)


@pytest.fixture(scope="module")
def plain_tokens(desk: Desk) -> list[list[int]]:
    """What one server without disaggregation answers; it starts while nothing else runs."""
    prefill = desk.commands()["prefill-0.0"]
    argv = without(prefill["argv"], "disaggregation-mode", "disaggregation-transfer-backend")
    argv = without(argv, "disaggregation-bootstrap-port")
    server = desk.start("plain", argv, prefill["env"])
    wait_until_ready(desk.ports["prefill"], server, desk, "plain")
    tokens = [generate(desk.ports["prefill"], prompt) for prompt in PROMPTS]
    desk.end_by_hand()
    assert all(len(set(each)) > NUM_TOKENS // 2 for each in tokens), "the model repeats itself: no oracle"
    return tokens


def test_up_serves_the_tokens_of_one_plain_server(desk: Desk, plain_tokens: list[list[int]]):
    desk.up()
    assert [generate(desk.ports["router"], prompt) for prompt in PROMPTS] == plain_tokens


def test_status_and_logs_show_the_real_processes(desk: Desk):
    processes = status(desk)
    assert {name: each["phase"] for name, each in processes.items()} == {
        "prefill-0.0": "ready",
        "decode-0.0": "ready",
        "router-0.0": "ready",
    }
    assert processes["decode-0.0"]["rss_bytes"] > 1e9  # SGLang's children are counted
    said = desk.pdctl("logs", "decode-0", "--tail", "500").stdout
    assert "'disaggregation_mode': 'decode'" in said


def test_restart_replaces_decode_alone_and_tokens_stay(desk: Desk, plain_tokens: list[list[int]]):
    before = {name: each["pid"] for name, each in status(desk).items()}
    restarted = desk.pdctl("restart", "decode-0")
    assert restarted.returncode == 0, restarted.stderr
    after = {name: each["pid"] for name, each in status(desk).items()}
    assert [name for name in after if after[name] != before[name]] == ["decode-0.0"]
    assert [generate(desk.ports["router"], prompt) for prompt in PROMPTS] == plain_tokens


def test_a_router_that_names_a_wrong_bootstrap_port_gets_no_answer(desk: Desk):
    """PD304 and the plan's own check guard this port: decode looks for prefill there."""
    router = desk.commands()["router-0.0"]
    port, metrics = free_port(), free_port()
    argv = replaced(replaced(router["argv"], "port", str(port)), "prometheus-port", str(metrics))
    at = argv.index("--prefill")
    argv[at + 2] = str(free_port())
    process = desk.start("router", argv, router["env"])
    wait_until_ready(port, process, desk, "router", path="/readiness")
    with pytest.raises((urllib.error.HTTPError, TimeoutError, AssertionError)):
        generate(port, PROMPTS[0], timeout_s=15)
    desk.end_by_hand()
    assert argv[at + 2] in desk.pdctl("logs", "decode-0", "--tail", "200").stdout


def test_over_nixl_the_tokens_are_the_same(desk: Desk, plain_tokens: list[list[int]]):
    desk.up("transfer.backend=nixl")
    assert [generate(desk.ports["router"], prompt) for prompt in PROMPTS] == plain_tokens


def test_prefill_on_two_ranks_feeds_decode_on_one(desk: Desk, plain_tokens: list[list[int]]):
    desk.up("prefill.parallel.tp=2", "prefill.env.SGLANG_CPU_OMP_THREADS_BIND=0|1")
    assert [generate(desk.ports["router"], prompt) for prompt in PROMPTS] == plain_tokens


def test_down_leaves_none_of_the_processes_that_sglang_started(desk: Desk):
    family = [member for each in status(desk).values() for member in session_of(each["pid"])]
    assert len(family) >= 8, "prefill and decode have children, and a router"
    down = desk.pdctl("down", NAME)
    assert down.returncode == 0, down.stderr
    assert [member for member in family if is_alive(member)] == []


def test_unequal_page_sizes_end_decode_with_the_first_request(desk: Desk):
    """What PD302 says: nothing is wrong at start; the first request fails, and decode ends with it."""
    refused = desk.pdctl(
        "plan", str(TOPOLOGY), *desk.sets("prefill.args.page-size=16", "decode.args.page-size=32")
    )
    assert refused.returncode == 1
    assert "PD302" in refused.stderr
    small, large = (desk.commands(f"defaults.args.page-size={size}") for size in (16, 32))
    started = {
        "prefill": desk.start("prefill", small["prefill-0.0"]["argv"], small["prefill-0.0"]["env"]),
        "decode": desk.start("decode", large["decode-0.0"]["argv"], large["decode-0.0"]["env"]),
    }
    for role, process in started.items():
        wait_until_ready(desk.ports[role], process, desk, role)
    router = desk.start("router", small["router-0.0"]["argv"], small["router-0.0"]["env"])
    wait_until_ready(desk.ports["router"], router, desk, "router", path="/readiness")
    with pytest.raises((urllib.error.HTTPError, TimeoutError, AssertionError)):
        generate(desk.ports["router"], PROMPTS[0], timeout_s=15)
    started["decode"].wait(timeout=60)
    assert "Page size mismatch: prefill server has page_size=16" in desk.log("decode")
    desk.end_by_hand()


def status(desk: Desk) -> dict[str, dict]:
    (deployment,) = json.loads(desk.pdctl("status", NAME, "--json").stdout)["deployments"]
    return {process["id"]: process for process in deployment["processes"]}


def generate(port: int, prompt: str, *, timeout_s: float = 120.0) -> list[int]:
    sampling = {"temperature": 0, "max_new_tokens": NUM_TOKENS, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/generate",
        data=json.dumps({"text": prompt, "sampling_params": sampling}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        tokens = json.loads(answer.read())["output_ids"]
    assert len(tokens) == NUM_TOKENS
    return tokens


def wait_until_ready(
    port: int, process: subprocess.Popen, desk: Desk, name: str, *, path: str = "/health"
) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"{name} ended: {desk.log(name)[-3000:]}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=25):
                return
        except OSError:
            time.sleep(0.3)
    raise AssertionError(f"{name} is not ready: {desk.log(name)[-3000:]}")


def without(argv: Sequence[str], *flags: str) -> list[str]:
    words = list(argv)
    for flag in flags:
        at = words.index(f"--{flag}")
        del words[at : at + 2]
    return words


def replaced(argv: Sequence[str], flag: str, value: str) -> list[str]:
    words = list(argv)
    words[words.index(f"--{flag}") + 1] = value
    return words


def free_ports() -> dict[str, int]:
    """Ports that were free a moment ago, all different, outside the ranges that SGLang draws from."""
    names = ("prefill", "bootstrap", "decode", "router", "metrics")
    found: list[int] = []
    while len(found) < len(names):
        port = random.randrange(10000, 14900)
        if port not in found and is_free(port):
            found.append(port)
    return dict(zip(names, found, strict=True))


def free_port() -> int:
    return free_ports()["prefill"]


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


Member = tuple[int, str]  # pid and start, so that a number used again is no survivor


def session_of(pid: int) -> list[Member]:
    """All living processes of a session, which is named by its first process."""
    found = []
    for entry in Path("/proc").iterdir():
        fields = stat_of(entry) if entry.name.isdigit() else None
        if fields and fields[3] == str(pid):
            found.append((int(entry.name), fields[19]))
    return found


def is_alive(member: Member) -> bool:
    fields = stat_of(Path("/proc") / str(member[0]))
    return fields is not None and fields[19] == member[1]


def stat_of(entry: Path) -> list[str] | None:
    """Fields after the command: state, parent, group, session, …; None for a zombie."""
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields


def with_signal(member: Member, number: int) -> None:
    if is_alive(member):
        os.kill(member[0], number)
