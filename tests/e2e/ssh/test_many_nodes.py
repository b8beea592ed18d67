"""Deployments over several real hosts that get lost, come back, reboot; operators who meet."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testbed.hosts.host_set import HostSet
from tests.testbed.hosts.host_spec import HostSpec

pytestmark = pytest.mark.slow

TREE = Path(__file__).parents[3]
RUN_ROOT = "/root/.local/state/pdctl"
PROCESSES = ("prefill-0.0", "decode-0.0", "decode-1.0", "router-0.0")


@pytest.fixture(scope="module")
def hosts(make_hosts: Callable[..., HostSet]) -> HostSet:
    return make_hosts(n1=HostSpec(), n2=HostSpec(), n3=HostSpec(), n4=HostSpec())


@pytest.fixture
def topology(tmp_path: Path, hosts: HostSet) -> Callable[..., Path]:
    """The router on n1, prefill on n2, a decode instance on each of n3 and n4."""

    def write(decode_env: str = "{}") -> Path:
        file = tmp_path / "t.yaml"
        file.write_text(
            "schema: pdctl/v1\nname: far\nmodel: {path: none}\nengine: {kind: dummy}\n"
            "cluster:\n  executor: ssh\n"
            f"  ssh: {{config: {hosts.ssh_config}, connect_timeout_s: 2, keepalive_s: 1}}\n"
            f"  nodes: [{', '.join(f'{{name: {host.name}, address: {host.address}}}' for host in hosts)}]\n"
            f"prefill: {{on: [n2]}}\ndecode: {{instances: 2, on: [n3, n4], env: {decode_env}}}\n"
            f"router: {{on: n1, python: {sys.executable}, env: {{PYTHONPATH: {TREE}}}}}\n"
            "health: {stop_grace_s: 1}\n"
        )
        return file

    return write


def _wait_until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.1)


def _left_on(hosts: HostSet) -> list[str]:
    """Processes and files of deployments."""
    look = f"pgrep -af 'dummy_engine|runtime.router|shim-'; find {RUN_ROOT} 2>/dev/null"
    return [
        f"{host.name}: {line}"
        for host in hosts
        for line in host.try_console("sh", "-c", look).stdout.splitlines()
        if "pgrep" not in line
    ]


def test_a_host_that_down_cannot_reach_is_remembered_and_the_next_down_finishes(operator, topology, hosts):
    ada, bob, file = operator("ada"), operator("bob"), topology()
    ada.pdctl("up", file, "--verify", "pairs")
    assert ada.states("far") == dict.fromkeys(PROCESSES, "ready")

    hosts["n4"].blackhole()
    assert ada.states("far")["decode-1.0"] == "unknown"
    status = ada.pdctl("status", "far")
    assert "decode-1.0: its node can't be reached" in status
    assert "problem: n4 can't be reached" in status

    down = ada.pdctl("down", "far", code=1)
    assert "not reached: n4: " in down
    assert "n4 still has to be taken down, since " in bob.pdctl("status", file)

    hosts["n4"].heal()
    assert hosts["n4"].try_console("pgrep", "-f", "dummy_engine").returncode == 0
    assert json.loads(ada.pdctl("down", "far", "--json"))["pending"] == []
    assert "\n".join(_left_on(hosts)) == ""
    acts = [act["entry"] for act in json.loads(ada.pdctl("history", "far", "--json"))["acts"]]
    assert [(act["verb"], act["outcome"]) for act in acts] == [
        ("up", "done"),
        ("down", "unfinished"),
        ("down", "done"),
    ]
    assert acts[0]["changes"] == ["create prefill-0.0,decode-[0-1].0,router-0.0"]


def test_down_goes_on_without_the_first_node_and_a_rebooted_host_counts_as_clean(operator, topology, hosts):
    ada = operator("ada")
    ada.pdctl("up", topology())
    hosts["n1"].blackhole()
    hosts["n3"].reboot()
    assert ada.states("far")["decode-0.0"] == "lost"
    down = ada.begin("down", "far")
    assert down.wait(60) == 1
    assert "took the lock on another node: n1 can't be reached" in ada.output()
    hosts["n1"].heal()
    ada.pdctl("down", "far")
    assert "\n".join(_left_on(hosts)) == ""


def test_a_host_lost_while_it_starts_ends_up_with_all_that_runs_kept(operator, topology, hosts):
    ada, file = operator("ada"), topology("{DUMMY_READY_AFTER_S: '1000'}")
    up = ada.begin("up", file, "--timeout", "12")
    _wait_until(lambda: re.search(r"started .*decode", ada.output()), "decode-1.0 started")
    hosts["n4"].blackhole()
    assert up.wait(90) == 1
    told = ada.output()
    assert "error[PD610]: n4 was lost before the deployment was ready" in told
    assert "error[PD603]: `decode-0.0` was not ready within 12 s" in told
    hosts["n4"].heal()
    states = ada.states("far")
    assert (states["prefill-0.0"], states["router-0.0"]) == ("ready", "exited")
    ada.pdctl("down", "far")
    assert "\n".join(_left_on(hosts)) == ""


def test_followed_logs_go_on_without_a_lost_host_and_with_it_when_it_answers(operator, topology, hosts):
    ada = operator("ada")
    ada.pdctl("up", topology())
    logs = ada.begin("logs", "--name", "far", "-f", "--tail", "5", "--json")
    _wait_until(lambda: "decode-1.0" in ada.output(), "its lines come")
    hosts["n4"].cut()
    _wait_until(lambda: '"n4", "text": "can\'t be reached' in ada.output(), "the loss is told")
    run = f"{RUN_ROOT}/run/far/decode-1.0/000001/output.log"
    hosts["n4"].console("sh", "-c", f"echo written while nobody could read >> {run}")
    hosts["n3"].console("sh", "-c", f"echo the others go on >> {run.replace('decode-1', 'decode-0')}")
    _wait_until(lambda: "the others go on" in ada.output(), "the others go on")
    hosts["n4"].heal()
    _wait_until(lambda: "written while nobody could read" in ada.output(), "what was missed comes")
    assert '"text": "answers again"' in ada.output()
    logs.send_signal(signal.SIGINT)
    logs.wait(20)
    ada.pdctl("down", "far")


def test_one_operator_at_a_time_and_a_lock_that_must_be_broken(operator, topology, hosts):
    ada, bob = operator("ada"), operator("bob")
    file = topology("{DUMMY_READY_AFTER_S: '1000'}")
    up = ada.begin("up", file)
    _wait_until(lambda: re.search(r"started .*decode", ada.output()), "decode-1.0 started")
    bob.pdctl("status", file)
    assert "locked by " in bob.pdctl("lock", "show", "far")
    assert "error[PD607]: `far` is being changed by" in bob.pdctl("down", "far", code=1)
    # Told so, an operator who lives stops, and what runs goes on.
    bob.pdctl("lock", "break", "far", "--yes")
    assert up.wait(60) == 1
    assert "error[PD614]: " in ada.output()
    assert "has taken the lock of `far` away at " in ada.output()
    assert bob.states("far")["decode-1.0"] == "starting"

    up = ada.begin("up", file)
    _wait_until(lambda: "locked by " in bob.pdctl("lock", "show", "far"), "it goes on from there")
    up.kill()
    up.wait()
    # On the machine where the owner died, the lock is free; it is not broken, but taken over.
    assert json.loads(bob.pdctl("lock", "show", "far", "--json"))["is_dead"] is True
    assert json.loads(bob.pdctl("lock", "break", "far", "--yes", "--json"))["is_broken"] is True
    assert "not locked" in bob.pdctl("lock", "show", "far")
    bob.pdctl("down", "far")
    assert "\n".join(_left_on(hosts)) == ""
    assert [act["entry"]["verb"] for act in json.loads(bob.pdctl("history", "far", "--json"))["acts"]] == [
        "lock break",
        "up",
        "lock break",
        "down",
    ]
