"""Operators who die, or meet: whatever they leave, the next `up` or `down` finishes the job.

The router and the lock are on n1, prefill and decode on n2.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testbed.hosts.host_set import HostSet
from tests.testbed.hosts.host_spec import HostSpec

pytestmark = pytest.mark.slow

TREE = Path(__file__).parents[3]
RUN_ROOT = "/root/.local/state/pdctl/run"
SPEC = HostSpec(files={"/root/.local/state/other/program": "keeps its state beside ours"})
ENGINES = ("prefill-0.0", "decode-0.0")
ALL_READY = dict.fromkeys((*ENGINES, "router-0.0"), "ready")
NUM_DEATHS = 10  # of each seed
SEEDS = (4, 5)


@pytest.fixture(scope="module")
def hosts(make_hosts: Callable[..., HostSet]) -> HostSet:
    return make_hosts(n1=SPEC, n2=SPEC)


@pytest.fixture
def topology(tmp_path: Path, hosts: HostSet) -> Callable[..., Path]:
    def write(decode_env: str = "{}", *, grace_s: int = 1) -> Path:
        nodes = [f"{{name: {host.name}, address: {host.address}}}" for host in hosts]
        file = tmp_path / "t.yaml"
        file.write_text(
            "schema: pdctl/v1\nname: far\nmodel: {path: none}\nengine: {kind: dummy}\n"
            f"cluster:\n  executor: ssh\n  ssh: {{config: {hosts.ssh_config}}}\n"
            f"  nodes: [{', '.join(nodes)}]\n"
            f"prefill: {{on: [n2]}}\ndecode: {{on: [n2], env: {decode_env}}}\n"
            f"router: {{on: n1, python: {sys.executable}, env: {{PYTHONPATH: {TREE}}}}}\n"
            f"health: {{stop_grace_s: {grace_s}}}\n"
        )
        return file

    return write


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_operators_that_die_at_any_moment_leave_a_job_that_the_next_one_finishes(
    operator, topology, hosts, left_behind, seed
):
    """From one state to the next, an operator dies on the way; then another goes on, or turns back."""
    ada, file = operator("ada"), topology()
    took_s = {
        "up": _seconds(lambda: ada.pdctl("up", file)),
        "down": _seconds(lambda: ada.pdctl("down", "far")),
    }
    chance = random.Random(seed)
    is_up = False
    for number in range(1, NUM_DEATHS + 1):
        verb = "down" if is_up else "up"
        words = (verb, "far" if is_up else file)
        moment_s = chance.uniform(0.1, 1.0) * took_s[verb]
        print(f"death {number} of {NUM_DEATHS}: {verb} after {moment_s:.2f} s")
        dying = ada.begin(*words)
        time.sleep(moment_s)
        os.killpg(dying.pid, signal.SIGKILL)
        dying.wait()
        before = _workers(hosts)
        is_up = chance.random() < 0.5
        if is_up:
            ada.pdctl("up", file)
            assert ada.states("far") == ALL_READY
            assert _num_engines(hosts) == len(ENGINES), "each engine runs once"
            if verb == "up":
                assert before.items() <= _workers(hosts).items(), "what ran is kept"
        else:
            ada.pdctl("down", "far")
            assert left_behind() == []
    if is_up:
        ada.pdctl("down", "far")
    assert left_behind() == []


def test_the_first_up_of_all_that_dies_with_nothing_but_the_lock_is_cleaned_up_by_down(
    operator, topology, hosts, left_behind, wait_until
):
    ada, file = operator("ada"), topology()
    up = ada.begin("up", file)
    wait_until(hosts["n1"].path(f"{RUN_ROOT}/far/operator.json").exists, "the lock is taken")
    os.killpg(up.pid, signal.SIGKILL)
    up.wait()
    assert _workers(hosts) == {}
    ada.pdctl("down", file)
    assert left_behind() == []


def test_an_up_right_after_a_down_that_died_does_not_count_on_what_is_still_being_ended(
    operator, topology, hosts, left_behind, wait_until
):
    ada, file = operator("ada"), topology("{DUMMY_IGNORE_TERM: '1'}", grace_s=6)
    ada.pdctl("up", file)
    down = ada.begin("down", file)
    is_stopping = ("pgrep", "-f", "shim-.* stop .* decode-0.0")
    wait_until(lambda: hosts["n2"].try_console(*is_stopping).returncode == 0, "the call has arrived")
    os.killpg(down.pid, signal.SIGKILL)
    down.wait()
    ada.pdctl("up", file)
    wait_until(lambda: hosts["n2"].try_console(*is_stopping).returncode != 0, "the call has ended")
    assert ada.states("far") == ALL_READY
    assert _workers(hosts)["decode-0.0"].startswith("000002 ")
    ada.pdctl("down", "far")
    assert left_behind() == []


def test_an_operator_on_another_machine_holds_the_lock_until_it_is_broken(
    operator, topology, hosts, left_behind, wait_until
):
    ada, bob = operator("ada"), operator("bob")
    file = topology("{DUMMY_READY_AFTER_S: '1000'}")
    up = _begin_elsewhere(ada, "up", file)
    wait_until(lambda: re.search(r"started .*decode", ada.output()), "decode-0.0 started")
    refused = bob.pdctl("up", file, code=1)
    assert "error[PD607]: `far` is being changed by " in refused
    assert "@elsewhere with `up` since " in refused
    os.killpg(up.pid, signal.SIGKILL)
    up.wait()
    # Dead or not, nobody here can know.
    assert "@elsewhere with `up` since " in bob.pdctl("down", file, code=1)
    assert json.loads(bob.pdctl("lock", "show", file, "--json"))["is_dead"] is False
    assert json.loads(bob.pdctl("lock", "break", file, "--yes", "--json"))["is_broken"] is True
    running = _workers(hosts)
    bob.pdctl("up", topology())
    assert bob.states("far") == ALL_READY
    assert _workers(hosts)["prefill-0.0"] == running["prefill-0.0"]
    assert _num_engines(hosts) == len(ENGINES)
    bob.pdctl("down", "far")
    assert left_behind() == []


def _seconds(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def _begin_elsewhere(operator, *words: str | Path) -> subprocess.Popen[bytes]:
    """As `Operator.begin`, on a machine with another name."""
    rename = 'echo elsewhere > /proc/sys/kernel/hostname; exec "$@"'
    with (operator.folder / "pdctl.out").open("wb") as out:
        return subprocess.Popen(
            ["unshare", "--uts", "sh", "-c", rename, "sh", sys.executable, "-m", "pdctl", *map(str, words)],
            cwd=operator.folder,
            env=operator.environ,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _num_engines(hosts: HostSet) -> int:
    return len(hosts["n2"].console("pgrep", "-f", "dummy_engine.py").split())


def _workers(hosts: HostSet) -> dict[str, str]:
    """The run and the pid of each engine that was started, from what lies on its node."""
    place = hosts["n2"].path(f"{RUN_ROOT}/far")
    found: dict[str, str] = {}
    for record in sorted(place.glob("*/0*/status.json")):
        process = json.loads(record.read_bytes())
        if hosts["n2"].path(f"/proc/{process['pid']}/cmdline").exists():
            found[record.parents[1].name] = f"{record.parent.name} {process['pid']}"
    return found
