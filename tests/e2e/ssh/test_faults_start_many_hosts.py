"""200 hosts of which 7 are dead: they are named in one line, and cost the wait for one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.hosts.loopback import LoopbackHosts, new_loopback_hosts
from tests.testbed.hosts.process_id import recorded

pytestmark = pytest.mark.slow

DEAD = (3, 17, 18, 19, 77, 120, 200)
NUM_HOSTS = 200
UNREACHED = "m[3,17-19,77,120,200] can't be reached: port 2222 takes connections but greets nobody within 5 s"


@pytest.fixture(scope="module")
def hosts() -> tuple[()]:
    """None that an operator could heal: the many have one machine."""
    return ()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoopbackHosts, LoopbackHosts]]:
    """Those that live, and the seven, whose sshd serves no others."""
    if os.geteuid() != 0:
        pytest.skip("real hosts need root on Linux")
    with (
        new_loopback_hosts(tmp_path_factory.mktemp("living"), NUM_HOSTS - len(DEAD)) as living,
        new_loopback_hosts(tmp_path_factory.mktemp("dying"), len(DEAD)) as dying,
    ):
        yield living, dying


@pytest.fixture
def topology(tmp_path: Path, many: tuple[LoopbackHosts, LoopbackHosts]) -> Path:
    """One process a host."""
    living, dying = many
    addresses = {
        number: hosts.address(name)
        for hosts, numbers in ((dying, DEAD), (living, sorted({*range(1, NUM_HOSTS + 1)} - {*DEAD})))
        for number, name in zip(numbers, hosts.names, strict=True)
    }
    config = "".join(
        f"Host m{number}\n  HostName {address}\n  Port 2222\n  User root\n"
        f"  IdentityFile {of.base}/id\n  UserKnownHostsFile {of.base}/known_hosts\n"
        for number, address in addresses.items()
        for of in [dying if number in DEAD else living]
    )
    (tmp_path / "config").write_text(f"{config}Host *\n  KexAlgorithms curve25519-sha256\n")
    file = tmp_path / "t.yaml"
    file.write_text(
        "schema: pdctl/v1\nname: wide\nmodel: {path: none}\nengine: {kind: dummy}\n"
        "cluster:\n  executor: ssh\n  ssh: {config: config, connect_timeout_s: 5}\n"
        f"  nodes: [{{name: 'm[1-{NUM_HOSTS}]'}}]\n"
        f"prefill: {{on: [m1]}}\ndecode: {{instances: {NUM_HOSTS - 1}, on: ['m[2-{NUM_HOSTS}]']}}\n"
        "router: {on: m1}\n"
    )
    return file


def _signal(hosts: LoopbackHosts, number: signal.Signals) -> None:
    for record in hosts.claim.folder.glob("*/init"):
        pid = recorded(record)
        assert pid is not None
        os.kill(pid, number)


def test_seven_dead_hosts_among_two_hundred_are_named_in_one_line(operator, topology, many):
    ada = operator("ada")
    _signal(many[1], signal.SIGSTOP)
    try:
        told = ada.pdctl("up", topology, code=1)
        assert told.count("error[") == 1
        assert f"error[PD517]: {UNREACHED}\n" in told

        _remember(ada.folder / "state", ada.pdctl("plan", topology, "--json"))
        (status,) = json.loads(ada.pdctl("status", "wide", "--json"))["deployments"]
        assert status["problems"] == [UNREACHED]
        unknown = {each["node"] for each in status["processes"] if each["phase"] == "unknown"}
        assert unknown == {f"m{number}" for number in DEAD}
    finally:
        _signal(many[1], signal.SIGCONT)
    assert [str(path) for path in many[0].home.rglob("*") if not path.is_dir()] == []


def _remember(state: Path, plan: str) -> None:
    """As an operator's record has it though nothing runs: 200 processes would cost more than the test may."""
    record = state / "deployments/wide/plan.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(plan)
