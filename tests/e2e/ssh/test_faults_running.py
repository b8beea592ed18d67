"""Faults of hosts and links while a deployment comes up or serves: each heals, and leaves nothing behind.

The router and the lock are on n1, prefill on n2, decode on n3, which is the one that things happen to.
`test_many_nodes.py` has followed logs through a cut, and a host that is lost until the deadline.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testbed.hosts.host_set import HostSet
from tests.testbed.hosts.host_spec import HostSpec

pytestmark = pytest.mark.slow

TREE = Path(__file__).parents[3]
RUN_ROOT = "/root/.local/state/pdctl/run"
DECODE = f"{RUN_ROOT}/far/decode-0.0"
# The clock of this machine can't be set for one host, so this Python of n3 tells another time: as many
# seconds off as the file says, which may change at any moment.
JUMPING_PYTHON, OFFSET = "/root/clock/python", "/root/clock/offset"
_JUMPING_PYTHON = f"""\
#!/bin/sh
[ -f "$3" ] || exec /usr/bin/python3 "$@"
exec /usr/bin/python3 -I -S -c '
import sys, time
true_time = time.time
time.time = lambda: true_time() + float(open("{OFFSET}").read())
sys.argv = sys.argv[3:]
with open(sys.argv[0]) as file:
    exec(compile(file.read(), sys.argv[0], "exec"), {{"__name__": "__main__", "__file__": sys.argv[0]}})
' "$@"
"""
# sshd itself would take two hours to see that an operator is gone whose last packet was lost.
SPEC = HostSpec(
    sshd=("ClientAliveInterval 2", "ClientAliveCountMax 2"),
    files={
        "/root/.local/state/other/program": "keeps its state beside ours",
        JUMPING_PYTHON: _JUMPING_PYTHON,
        OFFSET: "-86400\n",
    },
)


@pytest.fixture(scope="module")
def hosts(make_hosts: Callable[..., HostSet]) -> HostSet:
    return make_hosts(n1=SPEC, n2=SPEC, n3=SPEC)


@pytest.fixture
def topology(tmp_path: Path, hosts: HostSet) -> Callable[..., Path]:
    def write(
        *, decode_env: str = "{}", ssh: str = "connect_timeout_s: 3, keepalive_s: 1", n3: str = ""
    ) -> Path:
        nodes = [f"{{name: {host.name}, address: {host.address}}}" for host in hosts]
        nodes[2] = nodes[2].replace("}", f"{n3}}}")
        file = tmp_path / "t.yaml"
        file.write_text(
            "schema: pdctl/v1\nname: far\nmodel: {path: none}\nengine: {kind: dummy}\n"
            f"cluster:\n  executor: ssh\n  ssh: {{config: {hosts.ssh_config}, {ssh}}}\n"
            f"  nodes: [{', '.join(nodes)}]\n"
            f"prefill: {{on: [n2]}}\ndecode: {{on: [n3], env: {decode_env}}}\n"
            f"router: {{on: n1, python: {sys.executable}, env: {{PYTHONPATH: {TREE}}}}}\n"
            "health: {stop_grace_s: 1}\n"
        )
        return file

    return write


ALL_READY = {"prefill-0.0": "ready", "decode-0.0": "ready", "router-0.0": "ready"}


# --- The link of one host is cut ----------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["fabric", "openssh"])
def test_a_cut_while_the_shim_is_shipped_starts_nothing_and_the_next_up_ships_it(
    operator, topology, hosts, left_behind, wait_until, transport
):
    ada, n3 = operator("ada"), hosts["n3"]
    n3.slow("100kbit")
    ssh = f"connect_timeout_s: 10, keepalive_s: 1, transport: {transport}"
    up = ada.begin("up", topology(ssh=ssh))
    wait_until(lambda: [each for each in _files(n3) if each.stat().st_size > 0], "the shim is on its way")
    n3.cut()
    assert not list(n3.path(RUN_ROOT).glob("shim-*.py"))
    assert up.wait(90) == 1
    assert "n3 can't be reached: " in ada.output()
    assert "nothing was started or stopped" in ada.output()
    n3.heal()
    ada.pdctl("up", topology())
    assert ada.states("far") == ALL_READY
    ada.pdctl("down", "far")
    assert left_behind() == []


def test_a_cut_while_a_process_is_started_starts_it_once(operator, topology, hosts, left_behind, wait_until):
    ada, n3 = operator("ada"), hosts["n3"]
    up = ada.begin("up", topology())
    wait_until(n3.path(f"{DECODE}/lock").exists, "decode-0.0 is being started")
    n3.cut()
    wait_until(lambda: "`n3` unreachable since" in ada.output(), "the loss is told")
    n3.heal()
    assert up.wait(90) == 0, ada.output()
    assert ada.states("far") == ALL_READY
    assert len(n3.console("pgrep", "-f", "dummy_engine").split()) == 1
    assert [path.name for path in n3.path(DECODE).glob("0*")] == ["000001"]
    ada.pdctl("down", "far")
    assert left_behind() == []


def test_a_cut_while_up_waits_is_waited_out(operator, topology, hosts, left_behind, wait_until):
    ada, n3 = operator("ada"), hosts["n3"]
    up = ada.begin("up", topology(decode_env="{DUMMY_READY_AFTER_S: '4'}"))
    wait_until(lambda: re.search(r"started .*decode", ada.output()), "decode-0.0 starts")
    n3.cut()
    wait_until(lambda: "`n3` unreachable since" in ada.output(), "the loss is told")
    n3.heal()
    assert up.wait(90) == 0, ada.output()
    ada.pdctl("down", "far")
    assert left_behind() == []


def test_a_cut_while_down_stops_a_process_is_gone_on_with_by_the_next_down(
    operator, topology, hosts, left_behind, wait_until
):
    ada, n3 = operator("ada"), hosts["n3"]
    ada.pdctl("up", topology(decode_env="{DUMMY_IGNORE_TERM: '1'}"))
    down = ada.begin("down", "far")
    wait_until(lambda: re.search(r"stopping .*decode", ada.output()), "decode-0.0 is being stopped")
    n3.cut()
    assert down.wait(90) == 1
    assert "not reached: n3: " in ada.output()
    n3.heal()
    ada.pdctl("down", "far")
    assert left_behind() == []


def test_a_slow_link_that_loses_a_fifth_of_its_packets_is_enough(operator, topology, hosts, left_behind):
    ada, n3 = operator("ada"), hosts["n3"]
    n3.slow("1mbit")
    n3.lose(20)
    ada.pdctl("up", topology(ssh="connect_timeout_s: 20"))
    assert ada.states("far") == ALL_READY
    ada.pdctl("down", "far")
    n3.heal()
    assert left_behind() == []


# --- A host goes down and comes back ------------------------------------------------------------------------


def test_a_host_that_reboots_while_it_serves_is_lost_and_up_restarts_what_was_there(
    operator, topology, hosts, left_behind
):
    ada, file = operator("ada"), topology()
    ada.pdctl("up", file)
    before = _pids(ada)
    hosts["n3"].reboot()
    assert ada.states("far") == {**ALL_READY, "decode-0.0": "lost"}
    assert "the host rebooted" in ada.pdctl("status", "far")
    ada.pdctl("up", file)
    assert ada.states("far") == ALL_READY
    assert {**_pids(ada), "decode-0.0": 0} == {**before, "decode-0.0": 0}
    hosts["n3"].reboot()
    ada.pdctl("down", "far")
    assert left_behind() == []


def test_a_host_that_is_off_during_down_is_remembered_until_it_is_back(
    operator, topology, hosts, left_behind
):
    ada, n3 = operator("ada"), hosts["n3"]
    ada.pdctl("up", topology())
    n3.power_off()
    assert "not reached: n3: " in ada.pdctl("down", "far", code=1)
    assert "n3 still has to be taken down, since " in ada.pdctl("status", "far")
    n3.boot()
    assert ada.states("far")["decode-0.0"] == "lost"
    ada.pdctl("down", "far")
    assert left_behind() == []


# --- Odd processes and clocks -------------------------------------------------------------------------------


def test_a_process_that_forks_away_without_a_trace_and_ignores_term_is_gone_after_down(
    operator, topology, hosts, left_behind
):
    ada, n3 = operator("ada"), hosts["n3"]
    ada.pdctl("up", topology(decode_env="{DUMMY_ESCAPED_CHILD: '1', DUMMY_IGNORE_TERM: '1'}"))
    (escaped,) = n3.console("pgrep", "-f", "^escaped").split()
    assert n3.console("cat", f"/proc/{escaped}/environ") == ""
    ada.pdctl("down", "far")
    assert left_behind() == []


def test_a_clock_that_jumps_changes_nothing(operator, topology, hosts, left_behind):
    ada, n3 = operator("ada"), hosts["n3"]
    n3.console("chmod", "755", JUMPING_PYTHON)
    ada.pdctl("up", topology(n3=f", ssh: {{python: {JUMPING_PYTHON}}}"), "--skip-doctor")
    for offset in ("-86400", "+86400"):
        n3.console("sh", "-c", f"echo {offset} > {OFFSET}")
        assert ada.states("far") == ALL_READY
        uptimes = _of_each(ada, "uptime_s")
        assert abs(uptimes["decode-0.0"] - uptimes["prefill-0.0"]) < 600
    ada.pdctl("down", "far")
    assert left_behind() == []


def _files(host) -> list[Path]:
    """Of a shim that is not there as a whole."""
    return list(host.path(RUN_ROOT).glob("shim-*.tmp"))


def _of_each(operator, key: str) -> dict[str, float]:
    (status,) = json.loads(operator.pdctl("status", "far", "--json"))["deployments"]
    return {process["id"]: process[key] for process in status["processes"]}


def _pids(operator) -> dict[str, float]:
    return _of_each(operator, "pid")
