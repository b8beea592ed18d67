"""`pdctl doctor` over real hosts: each fault is made for real on one of them, and told of that one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testbed.hosts import snapshot
from tests.testbed.hosts.host import Host
from tests.testbed.hosts.host_set import HostSet
from tests.testbed.hosts.host_spec import HostSpec

pytestmark = pytest.mark.slow

TREE = Path(__file__).parents[3]
NAMES = ("h1", "h2", "h3", "h4")
BOOTSTRAP, DECODE_HTTP = 8998, 30100
MODEL = "/srv/model"

# A clock can't be set for one host, they share this machine's: the Python of one host tells another time.
LATE_PYTHON = """\
#!/bin/sh
[ "$3" = -c ] && exec /usr/bin/python3 "$@"
exec /usr/bin/python3 -I -S -c '
import sys, time
right = time.time
time.time = lambda: right() - 34
sys.argv = sys.argv[3:]
__file__ = sys.argv[0]
exec(compile(open(__file__).read(), __file__, "exec"))
' "$@"
"""
# No such hardware here: a driver's tool that answers for two devices, one of them taken by a stranger.
NVIDIA_SMI = """\
#!/bin/sh
case "$1" in
  --query-gpu*)
    echo '0, GPU-a, 570.86, 81559, 70112, NVIDIA H100'
    echo '1, GPU-b, 570.86, 81559, 0, NVIDIA H100' ;;
  *) echo 'GPU-a, 1, 70112, tini' ;;
esac
"""


@dataclass(frozen=True)
class Desk:
    """An operator's desk: a topology over the hosts, and `pdctl` to run with it."""

    folder: Path
    hosts: HostSet

    def write(self, engine: str, more: str = "", roles: str = "") -> None:
        first, last = self.hosts["h1"].address, self.hosts["h4"].address.rpartition(".")[2]
        network, _, start = first.rpartition(".")
        (self.folder / "t.yaml").write_text(
            f"schema: pdctl/v1\nname: desk\nmodel: {{path: {MODEL}}}\nengine: {{{engine}}}\n"
            "cluster:\n  executor: ssh\n"
            f"  ssh: {{config: {self.hosts.ssh_config}, connect_timeout_s: 2}}\n{more}"
            f'  nodes: [{{name: "h[1-4]", address: "{network}.[{start}-{last}]"}}]\n'
            f"router: {{python: {sys.executable}}}\n{roles}"
        )

    def pdctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PDCTL_")}
        return subprocess.run(
            [sys.executable, "-m", "pdctl", *words],
            cwd=self.folder,
            env={**environ, "PYTHONPATH": str(TREE), "PDCTL_STATE_DIR": str(self.folder / "state")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def faults(self) -> dict[str, dict[str, str]]:
        """Text of each fault of the doctor by code, then by the folded hosts that it was told of."""
        report = json.loads(self.pdctl("doctor", "t.yaml", "--json").stdout)
        found: dict[str, dict[str, str]] = {}
        for verdict in report["verdicts"]:
            if verdict["code"]:
                found.setdefault(verdict["code"], {})[",".join(verdict["nodes"])] = verdict["text"]
        return found


@pytest.fixture(scope="module")
def four_hosts(make_hosts: Callable[..., HostSet]) -> HostSet:
    hosts = make_hosts(**{name: HostSpec() for name in NAMES})
    for host in hosts:
        host.console(
            "sh", "-c", f"mkdir -p {MODEL}; printf 123 > {MODEL}/weights; printf 1 > {MODEL}/config.json"
        )
    return hosts


@pytest.fixture
def desk(tmp_path: Path, four_hosts: HostSet) -> Iterator[Desk]:
    desk = Desk(folder=tmp_path, hosts=four_hosts)
    roles = "prefill: {instances: 2, on: [h1, h2]}\ndecode: {instances: 2, on: [h3, h4]}\n"
    desk.write(f"kind: reference, python: {sys.executable}", roles=roles)
    yield desk
    for host in four_hosts:
        host.heal()


def nft(*rules: str) -> str:
    lines = ("add table inet faults", "add chain inet faults in { type filter hook input priority 0; }")
    return "\n".join((*lines, *(f"add rule inet faults in {rule}" for rule in rules)))


def restart_sshd(host: Host, *before: str) -> None:
    """Logins have the limits that sshd was started with."""
    start = "exec /usr/sbin/sshd -f /etc/ssh/sshd_testbed.conf -E /var/log/sshd.log"
    host.console("sh", "-c", "; ".join(("cd /", "kill $(cat /run/sshd.pid)", *before, start)))
    host.wait_for_sshd()


def test_hosts_that_are_fit_pass_and_nothing_but_the_shim_stays_on_them(desk: Desk):
    before = {host.name: snapshot.take(host) for host in desk.hosts}
    ran = desk.pdctl("doctor", "t.yaml")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "network        ok       h[1-4]  reaches all peers on their ports" in ran.stdout
    assert "desk: all is well on 4 nodes" in ran.stdout
    for host in desk.hosts:
        new = before[host.name].differences(snapshot.take(host))
        assert [line for line in new if "/.local" not in line] == []


def test_every_fault_is_told_of_the_host_that_has_it(desk: Desk):
    h1, h2, h3, h4 = (desk.hosts[name] for name in NAMES)
    h1.console("nft", "-f", "-", stdin=nft(f"ip saddr {h4.address} tcp dport {BOOTSTRAP} drop"))
    h4.console("nft", "-f", "-", stdin=nft(f"ip saddr {h2.address} ip length > 1000 drop"))
    h2.console("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", "/dev/shm")
    restart_sshd(h2, "ulimit -n 512")
    h3.console("sh", "-c", f"cd / && exec setsid -f python3 -m http.server {DECODE_HTTP} > /dev/null 2>&1")
    h3.console("sh", "-c", f"printf 1 > {MODEL}/weights")
    h4.console("rm", "-r", MODEL)
    h1.console(
        "sh", "-c", "cat > /usr/local/bin/python3; chmod 755 /usr/local/bin/python3", stdin=LATE_PYTHON
    )
    h3.console("sh", "-c", f"until ss -ltn | grep -q :{DECODE_HTTP}; do :; done")

    found = desk.faults()
    assert sorted(found) == ["PD410", "PD701", "PD704", "PD706", "PD721", "PD722", "PD723", "PD726"]
    assert found["PD701"]["h1"].startswith("its clock is 34 s")
    assert found["PD701"]["h1"].endswith("behind this machine's")
    assert found["PD704"] == {"h2": "`/dev/shm` has 16 MiB free of 16 MiB"}
    assert found["PD706"] == {"h2": "processes may open 512 files"}
    assert found["PD721"] == {"h4": f"`{MODEL}`: it does not exist"}
    assert found["PD722"] == {"h3": f"`{MODEL}` has 2 files of 2 B, on other nodes 2 files of 4 B"}
    assert found["PD410"]["h3"].startswith(f"port {DECODE_HTTP} is taken by process ")
    assert "python3 -m http.server" in found["PD410"]["h3"]
    assert found["PD723"] == {"h4": f"no way to h1 on port {BOOTSTRAP}: no answer within 3 s"}
    assert found["PD726"] == {
        "h4": f"no way to h2 on port {BOOTSTRAP} and any high port: "
        "the connection opens, but full packets don't arrive"
    }
    h1.console("rm", "/usr/local/bin/python3")
    h2.console("umount", "/dev/shm")
    restart_sshd(h2)
    h3.console("pkill", "-f", "http.server")
    h3.console("sh", "-c", f"printf 123 > {MODEL}/weights")
    h4.console("sh", "-c", f"mkdir -p {MODEL}; printf 123 > {MODEL}/weights; printf 1 > {MODEL}/config.json")


def test_accelerators_and_rdma_devices_are_held_against_the_plan(desk: Desk):
    desk.write(
        f"kind: sglang, python: {sys.executable}",
        more="  devices_per_node: 2\n",
        roles="transfer: {backend: mooncake, ib_devices: [mlx5_0]}\n"
        "prefill: {instances: 2, parallel: {tp: 2}, on: [h1, h2]}\n"
        "decode: {instances: 2, parallel: {tp: 2}, on: [h3, h4]}\n",
    )
    tree = "/sys/class/infiniband/mlx5_0/ports/1"
    gid = "fe80:0000:0000:0000:0202:c9ff:fe07:0102"
    for host in desk.hosts:
        host.console("mount", "-t", "tmpfs", "tmpfs", "/sys/class")
        if host.name != "h2":
            host.console(
                "sh", "-c", "cat > /usr/bin/nvidia-smi; chmod 755 /usr/bin/nvidia-smi", stdin=NVIDIA_SMI
            )
        if host.name != "h3":
            state = "1: DOWN" if host.name == "h4" else "4: ACTIVE"
            host.console(
                "sh",
                "-c",
                f"mkdir -p {tree}/gids; echo '{state}' > {tree}/state; echo {gid} > {tree}/gids/0;"
                f" echo Ethernet > {tree}/link_layer",
            )
    found = desk.faults()
    assert found["PD709"] == {"h2": "no `nvidia-smi`: No such file or directory"}
    assert found["PD710"] == {"h1,h3,h4": "68.5 GiB of device 0 are taken by process 1 (`tini`)"}
    assert found["PD713"] == {"h3": "there is no RDMA device `mlx5_0`"}
    assert found["PD714"] == {"h4": "`mlx5_0` can't carry data: port 1 is DOWN"}
    assert found["PD716"] == {"h1,h2,h4": "nothing was found that lets RDMA devices reach device memory"}
    assert found["PD718"] == {"h1,h2,h3,h4": f"`{sys.executable}` finds no package `sglang`"}
    for host in desk.hosts:
        host.console("sh", "-c", "umount /sys/class; rm -f /usr/bin/nvidia-smi")


def test_a_host_that_is_off_hides_nothing_of_the_others(desk: Desk):
    desk.hosts["h3"].cut()
    ran = desk.pdctl("doctor", "t.yaml", "--json")
    report = json.loads(ran.stdout)
    assert ran.returncode == 1
    reach = {
        verdict["standing"]: verdict["nodes"] for verdict in report["verdicts"] if verdict["check"] == "reach"
    }
    assert reach == {"ok": ["h1", "h2", "h4"], "error": ["h3"]}
    network = [verdict for verdict in report["verdicts"] if verdict["check"] == "network"]
    assert [(verdict["standing"], verdict["nodes"], verdict["text"]) for verdict in network] == [
        ("ok", ["h1", "h2"], "reaches all peers that could be asked on their ports"),
        ("ok", ["h4"], "reaches all peers on their ports"),
    ]


def test_up_looks_first_and_starts_nothing_where_an_engine_is_missing(desk: Desk):
    desk.write(
        "kind: reference, python: /opt/nowhere/bin/python",
        roles="prefill: {on: [h1]}\ndecode: {instances: 2, on: [h3, h4]}\n",
    )
    ran = desk.pdctl("up", "t.yaml")
    assert ran.returncode == 1
    assert "error[PD717]: on h[1,3-4]: `/opt/nowhere/bin/python` can't be run: " in ran.stderr
    assert "starting" not in ran.stderr
