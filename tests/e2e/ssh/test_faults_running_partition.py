"""A network that parts prefill from decode while real engines serve.

The router is on n1, prefill on n2, decode on n3; n1 goes on reaching both.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.testbed.hosts.host import Host
from tests.testbed.hosts.host_set import HostSet
from tests.testbed.hosts.host_spec import HostSpec

pytestmark = pytest.mark.slow

TREE = Path(__file__).parents[3]
ROUTER_PORT = 8000
DEADLINE_S = 4  # of the transfer; the router tries more than once
BOUND_S = 60.0  # far from the deadline, as this machine may be busy, and further from for ever


@pytest.fixture(scope="module")
def hosts(make_hosts: Callable[..., HostSet], tiny_llama: Path) -> HostSet:
    spec = HostSpec(
        shares=(str(tiny_llama),), files={"/root/.local/state/other/program": "keeps its state beside ours"}
    )
    return make_hosts(n1=spec, n2=spec, n3=spec)


@pytest.fixture
def topology(tmp_path: Path, hosts: HostSet, tiny_llama: Path) -> Path:
    nodes = ", ".join(f"{{name: {host.name}, address: {host.address}}}" for host in hosts)
    env = f"{{PYTHONPATH: {TREE}, OMP_NUM_THREADS: '1', HF_HUB_OFFLINE: '1', HOME: /tmp}}"
    file = tmp_path / "t.yaml"
    file.write_text(
        f"schema: pdctl/v1\nname: far\nmodel: {{path: {tiny_llama}}}\n"
        f"engine: {{kind: reference, python: {sys.executable}}}\ndefaults: {{env: {env}}}\n"
        f"cluster:\n  executor: ssh\n  ssh: {{config: {hosts.ssh_config}}}\n  nodes: [{nodes}]\n"
        "prefill: {on: [n2]}\ndecode: {on: [n3]}\n"
        f"router: {{on: n1, port: {ROUTER_PORT}, python: {sys.executable}}}\n"
        f"transfer: {{bootstrap_timeout_s: {DEADLINE_S}, waiting_timeout_s: {DEADLINE_S}}}\n"
    )
    return file


def test_requests_fail_in_time_while_prefill_and_decode_are_parted_and_pass_again_when_healed(
    operator, topology, hosts, left_behind
):
    ada = operator("ada")
    ada.pdctl("up", topology)
    running = _pids(ada)
    text = _generate(hosts["n1"]).json()["text"]
    for parted in (lambda: hosts["n3"].blackhole(hosts["n2"]), lambda: _part(hosts["n2"], hosts["n3"])):
        parted()
        began = time.monotonic()
        failed = _generate(hosts["n1"])
        assert failed.status_code >= 500, failed.text
        assert time.monotonic() - began < BOUND_S
        hosts["n2"].heal()
        hosts["n3"].heal()
        assert _generate(hosts["n1"]).json()["text"] == text
    assert _pids(ada) == running
    ada.pdctl("down", "far")
    assert left_behind() == []


def _pids(operator) -> dict[str, int]:
    (status,) = json.loads(operator.pdctl("status", "far", "--json"))["deployments"]
    return {process["id"]: process["pid"] for process in status["processes"]}


def _part(one: Host, other: Host) -> None:
    one.blackhole(other)
    other.blackhole(one)


def _generate(router: Host) -> httpx.Response:
    body = {"text": "the same words", "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
    return httpx.post(f"http://{router.address}:{ROUTER_PORT}/generate", json=body, timeout=BOUND_S)
