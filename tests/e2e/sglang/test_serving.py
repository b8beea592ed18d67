"""Released SGLang and its router serve what `pdctl up` starts, and its tokens are those of one plain server.

One deployment for all tests of this file, in their order: starting SGLang takes longest, most of it on one
core, so that servers start two or three at a time where they can. What rules refuse is forced through, by
commands taken from plans, to see it fail as `pdctl explain` says.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from runtime.shim.proc import Table

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
FreePort = Callable[[], int]
NO_ANSWER = (urllib.error.HTTPError, TimeoutError, AssertionError)


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

    def end(self, process: subprocess.Popen) -> None:
        for member in session_of(process.pid):
            with_signal(member, signal.SIGKILL)
        process.wait()
        self.by_hand.remove(process)

    def recorded(self, process_id: str) -> dict:
        """What the shim wrote down of the latest run."""
        runs = sorted((self.folder / "state" / "run" / NAME / process_id).glob("0*"))
        return {"run_dir": runs[-1], **json.loads((runs[-1] / "status.json").read_text())}


@pytest.fixture(scope="module")
def desk(testbed, tmp_path_factory: pytest.TempPathFactory, free_port: FreePort) -> Iterator[Desk]:
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
    ports = {name: free_port() for name in ("prefill", "bootstrap", "decode", "router", "metrics")}
    desk = Desk(folder=folder, environ=environ, ports=ports)
    yield desk
    for process in list(desk.by_hand):
        desk.end(process)
    desk.pdctl("down", NAME)


@pytest.fixture(scope="module")
def plain_server(desk: Desk, free_port: FreePort) -> tuple[subprocess.Popen, int]:
    """One server without disaggregation, and its port; not waited for."""
    prefill, port = desk.commands()["prefill-0.0"], free_port()
    argv = without(prefill["argv"], "disaggregation-mode", "disaggregation-transfer-backend")
    argv = beside_the_deployment(without(argv, "disaggregation-bootstrap-port"), port, free_port())
    return desk.start("plain", argv, prefill["env"]), port


@pytest.fixture(scope="module")
def deployed(desk: Desk) -> None:
    desk.up()


@pytest.fixture(scope="module")
def plain_tokens(desk: Desk, plain_server: tuple[subprocess.Popen, int], deployed: None) -> list[list[int]]:
    """What one server without disaggregation answers."""
    server, port = plain_server
    wait_until_ready(port, server, desk, "plain")
    tokens = [generate(port, prompt) for prompt in PROMPTS]
    desk.end(server)
    assert all(len(set(each)) > NUM_TOKENS // 2 for each in tokens), "the model repeats itself: no oracle"
    return tokens


@pytest.fixture(scope="module")
def decode_of_large_pages(desk: Desk, free_port: FreePort) -> tuple[subprocess.Popen, int]:
    """A decode server whose pages are larger than the deployment's, and its port; not waited for."""
    decode, port = desk.commands("defaults.args.page-size=32")["decode-0.0"], free_port()
    argv = beside_the_deployment(decode["argv"], port, free_port())
    return desk.start("decode", argv, decode["env"]), port


def test_up_serves_the_tokens_of_one_plain_server(desk: Desk, plain_tokens: list[list[int]]):
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


def test_what_writes_over_its_environment_is_known_by_its_output(desk: Desk):
    """A scheduler does, with its title: then only its output says whose it is, should its server be gone."""
    decode = desk.recorded("decode-0.0")
    environments = {pid: Path(f"/proc/{pid}/environ").read_bytes() for pid, _ in session_of(decode["pid"])}
    silent = {pid for pid, environ in environments.items() if b"PDCTL" not in environ}
    assert silent
    assert silent <= {process.pid for process, _ in Table().carriers(str(decode["run_dir"]))}


def test_restart_replaces_decode_alone_and_tokens_stay(desk: Desk, plain_tokens: list[list[int]]):
    before = {name: each["pid"] for name, each in status(desk).items()}
    restarted = desk.pdctl("restart", "decode-0")
    assert restarted.returncode == 0, restarted.stderr
    after = {name: each["pid"] for name, each in status(desk).items()}
    assert [name for name in after if after[name] != before[name]] == ["decode-0.0"]
    assert [generate(desk.ports["router"], prompt) for prompt in PROMPTS] == plain_tokens


def test_a_router_that_names_a_wrong_bootstrap_port_gets_no_answer(desk: Desk, free_port: FreePort):
    """PD304 and the plan's own check guard this port: decode looks for prefill there."""
    router = desk.commands()["router-0.0"]
    port, metrics = free_port(), free_port()
    argv = replaced(replaced(router["argv"], "port", str(port)), "prometheus-port", str(metrics))
    at = argv.index("--prefill")
    argv[at + 2] = str(free_port())
    process = desk.start("router", argv, router["env"])
    wait_until_ready(port, process, desk, "router", path="/readiness")
    with pytest.raises(NO_ANSWER):
        generate(port, PROMPTS[0], timeout_s=5)
    desk.end(process)
    assert wait_until(lambda: argv[at + 2] in desk.pdctl("logs", "decode-0", "--tail", "200").stdout)


def test_unequal_page_sizes_end_decode_with_the_first_request(
    desk: Desk, decode_of_large_pages: tuple[subprocess.Popen, int], free_port: FreePort
):
    """What PD302 says: nothing is wrong at start; the first request fails, and decode ends with it."""
    sizes = desk.sets("prefill.args.page-size=16", "decode.args.page-size=32")
    refused = desk.pdctl("plan", str(TOPOLOGY), *sizes)
    assert refused.returncode == 1
    assert "PD302" in refused.stderr
    decode, decode_port = decode_of_large_pages
    wait_until_ready(decode_port, decode, desk, "decode")
    command, port = desk.commands()["router-0.0"], free_port()
    argv = replaced(replaced(command["argv"], "port", str(port)), "prometheus-port", str(free_port()))
    argv = replaced(argv, "decode", f"http://127.0.0.1:{decode_port}")
    router = desk.start("router", argv, command["env"])
    wait_until_ready(port, router, desk, "router", path="/readiness")
    with pytest.raises(NO_ANSWER):
        generate(port, PROMPTS[0], timeout_s=15)
    desk.end(router)
    decode.wait(timeout=READY_S)
    desk.end(decode)
    assert "Page size mismatch: prefill server has page_size=1" in desk.log("decode")


def test_prefill_on_two_ranks_feeds_a_decode_that_was_kept(desk: Desk, plain_tokens: list[list[int]]):
    """Decode had asked the old prefill for its width; it asks the new one again."""
    before = desk.recorded("decode-0.0")["pid"]
    desk.up("prefill.parallel.tp=2", "prefill.env.SGLANG_CPU_OMP_THREADS_BIND=0|1")
    assert desk.recorded("decode-0.0")["pid"] == before
    assert [generate(desk.ports["router"], prompt) for prompt in PROMPTS] == plain_tokens


def test_a_server_killed_with_its_shim_is_lost(desk: Desk):
    decode = desk.recorded("decode-0.0")
    for pid in (decode["shim_pid"], decode["pid"]):
        os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: status(desk)["decode-0.0"]["phase"] == "lost")


def test_over_nixl_the_tokens_are_the_same(desk: Desk, plain_tokens: list[list[int]]):
    """On the ports of what was killed before, too."""
    desk.up("transfer.backend=nixl")
    assert [generate(desk.ports["router"], prompt) for prompt in PROMPTS] == plain_tokens


def test_down_leaves_none_of_the_processes_that_sglang_started(desk: Desk):
    family = [member for each in status(desk).values() for member in session_of(each["pid"])]
    assert len(family) >= 8, "prefill and decode have children, and a router"
    down = desk.pdctl("down", NAME)
    assert down.returncode == 0, down.stderr
    assert [member for member in family if is_alive(member)] == []


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
    def is_ready() -> bool:
        assert process.poll() is None, f"{name} ended: {desk.log(name)[-3000:]}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=25):
                return True
        except OSError:
            return False

    assert wait_until(is_ready), f"{name} is not ready: {desk.log(name)[-3000:]}"


def wait_until(is_so: Callable[[], bool]) -> bool:
    """Whether it came to be so in time."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if is_so():
            return True
        time.sleep(0.3)
    return False


def without(argv: Sequence[str], *flags: str) -> list[str]:
    words = list(argv)
    for flag in flags:
        at = words.index(f"--{flag}")
        del words[at : at + 2]
    return words


def beside_the_deployment(argv: Sequence[str], port: int, nccl_port: int) -> list[str]:
    """The same command on ports that the deployment does not have."""
    return replaced(replaced(argv, "port", str(port)), "nccl-port", str(nccl_port))


def replaced(argv: Sequence[str], flag: str, value: str) -> list[str]:
    words = list(argv)
    words[words.index(f"--{flag}") + 1] = value
    return words


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
