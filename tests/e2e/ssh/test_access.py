"""A deployment over SSH is found again: by name, by file, from anywhere, by operators who have no record."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testbed.hosts.host_set import HostSet
from tests.testbed.hosts.host_spec import HostSpec

TREE = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def hosts(make_hosts: Callable[..., HostSet]) -> HostSet:
    return make_hosts(n1=HostSpec(), n2=HostSpec(), n3=HostSpec())


@pytest.fixture
def topology(tmp_path: Path, hosts: HostSet) -> Path:
    """SSH files lie beside it, and are named from there."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files/ssh_config").write_text(hosts.ssh_config.read_text())
    file = tmp_path / "files/t.yaml"
    file.write_text(
        "schema: pdctl/v1\nname: far\nmodel: {path: none}\nengine: {kind: dummy}\n"
        "cluster:\n  executor: ssh\n  ssh: {config: ssh_config, connect_timeout_s: 3}\n"
        '  nodes: [{name: "n[1-3]", address: auto, interface: auto}]\n'
        "prefill: {on: [n1]}\ndecode: {on: [n2]}\n"
        f"router: {{on: n3, python: {sys.executable}, env: {{PYTHONPATH: {TREE}}}}}\n"
        "health: {stop_grace_s: 1}\n"
    )
    return file


def test_a_deployment_is_found_by_name_and_by_file_and_by_another_operator(operator, topology, hosts):
    ada, bob = operator("ada"), operator("bob")
    ada.pdctl("up", topology)
    ready = dict.fromkeys(("prefill-0.0", "decode-0.0", "router-0.0"), "ready")
    assert ada.states("far") == ready
    plan = json.loads(ada.pdctl("plan", topology, "--json"))
    assert {node["name"]: node["address"] for node in plan["nodes"]} == {
        host.name: host.address for host in hosts
    }

    unknown = bob.pdctl("status", "far", code=1)
    assert "error[PD608]" in unknown
    assert "found by its topology's path" in unknown
    assert bob.states(topology) == ready
    # Having been shown the way once, the name is enough, from anywhere.
    assert bob.states("far") == ready
    assert "prefill-0.0" in bob.pdctl("logs", "--name", "far", "--tail", "5")
    bob.pdctl("down", "far")
    assert all(host.try_console("pgrep", "-f", "dummy_engine").returncode == 1 for host in hosts)


def _pids(who) -> dict[str, int]:
    (deployment,) = json.loads(who.pdctl("status", "far", "--json"))["deployments"]
    return {process["id"]: process["pid"] for process in deployment["processes"]}


def test_a_record_that_another_operator_overtook_is_mended_and_a_host_that_was_left_is_seen_to(
    operator, topology, hosts
):
    """Ada moves decode from n2 to n3 while Bob still has the first plan on record."""
    ada, bob = operator("ada"), operator("bob")
    ada.pdctl("up", topology)
    bob.pdctl("status", topology)
    moved = topology.with_name("moved.yaml")
    moved.write_text(
        topology.read_text()
        .replace('"n[1-3]"', '"n[1,3]"')
        .replace("decode: {on: [n2]}", "decode: {on: [n3]}")
    )
    hosts["n2"].refuse(22)
    told = ada.pdctl("up", moved, code=1)
    assert "error[PD516]: n2 can't be reached" in told
    assert "no longer has it, but what runs there must be stopped" in told
    hosts["n2"].heal()
    ada.pdctl("up", moved)
    assert hosts["n2"].try_console("pgrep", "-f", "dummy_engine").returncode == 1
    assert not hosts["n2"].path("/root/.local/state/pdctl").exists()
    assert bob.states("far") == dict.fromkeys(("prefill-0.0", "decode-0.0", "router-0.0"), "ready")
    before, after = _pids(bob), (bob.pdctl("restart", "far/decode-0"), _pids(bob))[1]
    assert {name for name, pid in after.items() if pid != before[name]} == {"decode-0.0"}
    bob.pdctl("down", "far")
    assert all(host.try_console("pgrep", "-f", "dummy_engine").returncode == 1 for host in hosts)


def test_hosts_that_cannot_be_reached_are_told_together_before_anything_starts(operator, topology, hosts):
    for name in ("n2", "n3"):
        hosts[name].refuse(22)
    told = operator("ada").pdctl("up", topology, code=1)
    assert "error[PD516]: n[2-3] can't be reached: the connection to port 22 was refused" in told
    assert hosts["n1"].try_console("pgrep", "-f", "dummy_engine").returncode == 1
