"""The main job over hosts: two prefill and two decode instances on four of them, the router on a fifth.

One deployment of the built-in model lives through all that people do, while they come and go: Ada's laptop
closes while it starts; Bob, at another machine, has nothing but the topology.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testbed.hosts.host import Host
from tests.testbed.hosts.host_set import HostSet
from tests.testbed.hosts.host_spec import HostSpec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TREE = Path(__file__).parents[3]
MODEL = "builtin:smollm2-135m-instruct"
BYTES_PER_TOKEN = 30 * 2 * 3 * 64 * 4  # of KV cache: layers, keys and values, heads, their width, float32
PROMPT = "Every prefill instance hands its keys and values to a decode instance over the network. " * 12


@pytest.fixture(scope="module")
def hosts(make_hosts: Callable[..., HostSet]) -> HostSet:
    """They reach no package index, but their disks lie over this machine's: its cache is in theirs."""
    pull = [sys.executable, "-m", "runtime.models", "pull", MODEL]
    subprocess.run(pull, cwd=TREE, check=True, capture_output=True)
    spec = HostSpec(files={"/root/.local/state/other/program": "keeps its state beside ours"})
    return make_hosts(n1=spec, n2=spec, n3=spec, n4=spec, n5=spec)


@pytest.fixture
def topology(tmp_path: Path, hosts: HostSet) -> Path:
    """Each engine proves what it received by checksums, and fails the request otherwise."""
    file = tmp_path / "far.yaml"
    file.write_text(
        f"schema: pdctl/v1\nname: far\nmodel: {{path: {MODEL}}}\n"
        f"engine: {{kind: reference, python: {sys.executable}}}\n"
        "cluster:\n  executor: ssh\n"
        f"  ssh: {{config: {hosts.ssh_config}}}\n"
        '  nodes: [{name: "n[1-5]", address: auto}]\n'
        "transfer: {backend: tcp, verify_kv: true}\n"
        f"defaults: {{args: {{kv-pool-mb: 128, num-threads: 1}}, env: {{PYTHONPATH: {TREE}}}}}\n"
        "prefill: {instances: 2, on: [n1, n2]}\ndecode: {instances: 2, on: [n3, n4]}\n"
        f"router: {{policy: round_robin, on: n5, python: {sys.executable}, env: {{PYTHONPATH: {TREE}}}}}\n"
    )
    return file


def test_a_model_is_served_over_hosts_while_operators_come_and_go(
    operator, topology, hosts, left_behind, wait_until
):
    ada, bob = operator("ada"), operator("bob")
    assert "far: all is well on 5 nodes" in ada.pdctl("doctor", topology)

    laptop = ada.begin("up", topology)
    wait_until(lambda: re.search(r"started .*decode", ada.output()), "all engines started")
    os.killpg(laptop.pid, signal.SIGKILL)
    laptop.wait()

    up = bob.begin("up", topology, "--verify", "pairs")
    assert up.wait(400) == 0, bob.output()
    assert "started prefill" not in bob.output()
    assert "started decode" not in bob.output()
    assert "verifying with one request to each of 4 pairs" in bob.output()
    assert "the model answers: Paris" in bob.output()

    assert_keys_and_values_cross_the_network(hosts)
    assert "far: nothing to do, 5 to keep" in bob.pdctl("diff", topology)
    changed = bob.pdctl("diff", topology, "--set", "decode.args.kv-pool-mb=160")
    assert "far: 2 to replace, 3 to keep" in changed

    cleo = operator("cleo")
    cleo.states(topology)
    logs = cleo.begin("logs", "--name", "far", "-f", "--tail", "0")
    before = pids(bob)
    restart = bob.begin("restart", "decode-1")
    assert restart.wait(200) == 0, bob.output()
    after = pids(bob)
    assert [name for name in after if after[name] != before[name]] == ["decode-1.0"]
    wait_until(lambda: re.search(r"decode-1\.0 +│ ready: ", cleo.output()), "the new process is followed")
    logs.send_signal(signal.SIGINT)
    logs.wait(20)

    assert "far: all is well on 5 nodes" in bob.pdctl("doctor", "far")
    assert "far: not locked" in bob.pdctl("lock", "show", topology)
    acts = json.loads(cleo.pdctl("history", topology, "--json"))["acts"]
    assert [(act["entry"]["verb"], act["entry"]["outcome"]) for act in acts] == [
        ("up", "done"),
        ("restart", "done"),
    ]

    cleo.pdctl("down", topology)
    assert "\n".join(left_behind()) == ""


def assert_keys_and_values_cross_the_network(hosts: HostSet) -> None:
    """From prefill's links to decode's, and not by way of the router."""
    num_tokens = 0
    before = links(hosts)
    for number in range(4):
        answer = generate(hosts["n5"], f"{number}. {PROMPT}")
        num_tokens += answer["meta_info"]["prompt_tokens"]
    grown = {name: after - before[name] for name, after in links(hosts).items()}
    moved_bytes = num_tokens * BYTES_PER_TOKEN
    assert grown["n1", "sent"] + grown["n2", "sent"] >= moved_bytes
    assert grown["n3", "received"] + grown["n4", "received"] >= moved_bytes
    assert grown["n5", "sent"] + grown["n5", "received"] < moved_bytes / 10


def generate(router: Host, prompt: str) -> dict:
    sampling = {"temperature": 0, "max_new_tokens": 4}
    request = urllib.request.Request(
        f"http://{router.address}:8000/generate",
        data=json.dumps({"text": prompt, "sampling_params": sampling}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


def links(hosts: HostSet) -> dict[tuple[str, str], int]:
    """Bytes so far. What a host sends, the other end of its cable receives."""
    counters = {"sent": "rx_bytes", "received": "tx_bytes"}
    return {
        (host.name, way): int(Path(f"/sys/class/net/{host.nic}/statistics/{counter}").read_text())
        for host in hosts
        for way, counter in counters.items()
    }


def pids(operator) -> dict[str, int]:
    (status,) = json.loads(operator.pdctl("status", "far", "--json"))["deployments"]
    return {process["id"]: process["pid"] for process in status["processes"]}
