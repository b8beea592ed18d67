"""The hosts of the testbed are machines of their own, break as told, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed.hosts import snapshot
from tests.testbed.hosts.claim import claims_at
from tests.testbed.hosts.host_set import new_hosts
from tests.testbed.hosts.host_spec import HostSpec
from tests.testbed.hosts.loopback import new_loopback_hosts

_TREE = Path(__file__).parents[3]


def test_a_host_has_its_own_name_processes_boot_id_and_network(two_hosts, ssh):
    here = Path("/proc/sys/kernel/random/boot_id").read_text()
    seen = {}
    for host in two_hosts:
        told = ssh(
            two_hosts, host, "hostname; cat /proc/sys/kernel/random/boot_id; cat /proc/1/comm; ip -br addr"
        )
        name, boot_id, first, *addresses = told.stdout.splitlines()
        assert (name, first) == (host.name, "tini")
        assert f"{host.address}/24" in addresses[1]
        seen[name] = boot_id
    assert len({here.strip(), *seen.values()}) == 3


def test_a_host_sees_the_tree_at_the_same_path_and_cannot_change_it(two_hosts, ssh):
    assert (
        ssh(two_hosts, two_hosts["h1"], f"cat {_TREE}/pyproject.toml").stdout
        == (_TREE / "pyproject.toml").read_text()
    )
    assert "Read-only" in ssh(two_hosts, two_hosts["h1"], f"touch {_TREE}/mine").stderr


def test_a_snapshot_tells_what_came_and_what_went(two_hosts):
    host = two_hosts["h2"]
    before = snapshot.take(host)
    host.console("sh", "-c", "mkdir /var/lib/new; echo 1 > /tmp/new; sleep 4321 > /dev/null 2>&1 &")
    host.console("sh", "-c", "until pgrep -fx 'sleep 4321'; do :; done")
    assert before.differences(snapshot.take(host)) == [
        "processes: new: sleep 4321",
        "files: new: /tmp/new 2",
        "files: new: /var/lib/new/",
    ]
    host.console("sh", "-c", "rm -r /var/lib/new /tmp/new; kill $(pgrep -fx 'sleep 4321')")
    assert before.differences(snapshot.take(host)) == []


def test_a_reboot_keeps_the_disk_and_changes_the_boot_id(two_hosts):
    host = two_hosts["h2"]
    host.console("sh", "-c", "echo kept > /root/kept; echo lost > /tmp/lost")
    boot_id = host.path("/proc/sys/kernel/random/boot_id").read_text()
    host.reboot()
    assert host.path("/root/kept").read_text() == "kept\n"
    assert not host.path("/tmp/lost").exists()
    assert host.path("/proc/sys/kernel/random/boot_id").read_text() != boot_id
    host.path("/root/kept").unlink()


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda host: host.cut(), "timed out"),
        (lambda host: host.blackhole(), "timed out"),
        (lambda host: host.refuse(22), "Connection refused"),
        (lambda host: host.hang_sshd(), "timed out during banner exchange"),
    ],
    ids=["cut", "blackhole", "refuse", "hang"],
)
def test_a_broken_host_answers_again_when_it_is_healed(two_hosts, ssh, break_it, says):
    host = two_hosts["h2"]
    break_it(host)
    try:
        words = ["ssh", "-n", "-F", two_hosts.ssh_config, "-o", "ConnectTimeout=1", host.name, "true"]
        told = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        assert (told.returncode, says in told.stderr) == (255, True), told.stderr
    finally:
        host.heal()
    assert ssh(two_hosts, host, "echo well").stdout == "well\n"


def test_hosts_can_lose_each_other_alone(two_hosts, ssh):
    first, second = two_hosts
    reach = f"timeout 1 bash -c 'cat < /dev/tcp/{second.address}/22 | head -c 4'"
    assert ssh(two_hosts, first, reach).stdout == "SSH-"
    second.blackhole(first)
    try:
        assert ssh(two_hosts, first, reach).stdout == ""
        assert ssh(two_hosts, second, "echo well").stdout == "well\n"
    finally:
        second.heal()


def test_a_slow_link_is_slow_in_both_directions(two_hosts, ssh):
    host = two_hosts["h2"]
    host.slow("1mbit")
    try:
        assert "rate 1Mbit" in host.console("tc", "qdisc", "show", "dev", "eth0")
        assert "rate 1Mbit" in subprocess.check_output(["tc", "qdisc", "show", "dev", host.nic], text=True)
    finally:
        host.heal()
    assert "tbf" not in host.console("tc", "qdisc", "show", "dev", "eth0")


_KINDS = {
    "fish": HostSpec(login_shell="/usr/bin/fish", files={"/root/.config/fish/config.fish": "echo noise\n"}),
    "tcsh": HostSpec(login_shell="/usr/bin/tcsh", files={"/root/.cshrc": "echo noise\n"}),
    "noisy": HostSpec(files={"/root/.bashrc": "echo noise\n"}),
    "alice": HostSpec(user="alice", is_home_read_only=True),
    "small": HostSpec(home_bytes=1 << 20, hostname="größe", has_python=False),
    "locked": HostSpec(accepts_key=False),
}


@pytest.fixture(scope="module")
def kinds(make_hosts):
    return make_hosts(**_KINDS)


@pytest.mark.parametrize(
    ("name", "command", "out"),
    [
        ("fish", "set a 1; echo $a $FISH_VERSION | cut -c 1-3", "noise\n1 3\n"),
        ("tcsh", "set a = 1; echo $a $shell", "noise\n1 /usr/bin/tcsh\n"),
        ("noisy", "echo $0", "noise\nbash\n"),
        ("alice", "whoami; touch x 2> /dev/null || pwd", "alice\n/home/alice\n"),
        ("small", "hostname; command -v python3; head -c 2M /dev/zero 2> /dev/null > x || rm x", "größe\n"),
    ],
)
def test_hosts_of_many_kinds(kinds, ssh, name, command, out):
    assert ssh(kinds, kinds[name], command).stdout == out


def test_a_host_that_knows_another_key_denies(kinds, ssh):
    assert "Permission denied (publickey)" in ssh(kinds, kinds["locked"], "true").stderr


def test_a_new_host_key_is_noticed(make_hosts, ssh):
    hosts = make_hosts(h1=HostSpec())
    hosts["h1"].power_off()
    hosts.new_host_key("h1")
    hosts["h1"].boot()
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in ssh(hosts, hosts["h1"], "true").stderr


_KILLED = """
import json, os, sys
from pathlib import Path
from tests.testbed.hosts.host_set import new_hosts
from tests.testbed.hosts.host_spec import HostSpec
from tests.testbed.hosts.loopback import new_loopback_hosts
with new_hosts(Path(sys.argv[1]), {"h1": HostSpec()}) as hosts:
    print(json.dumps([str(hosts.claim.folder), hosts.claim.bridge, hosts["h1"].init_pid]), flush=True)
    input()
"""


def _is_left(folder: str, bridge: str, pid: int) -> list[bool]:
    return [Path(folder).exists(), Path(f"/sys/class/net/{bridge}").exists(), Path(f"/proc/{pid}").exists()]


@pytest.mark.usefixtures("make_hosts")
def test_the_next_set_removes_what_a_killed_run_left(tmp_path):
    killed = subprocess.Popen(
        [sys.executable, "-c", _KILLED, tmp_path / "a"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(_TREE)},
    )
    with killed:
        left = json.loads(killed.stdout.readline())
        assert _is_left(*left) == [True, True, True]
        killed.send_signal(signal.SIGKILL)
    assert _is_left(*left) == [True, True, True]
    mounts = Path("/proc/mounts").read_text()
    with new_hosts(tmp_path / "b", {}) as hosts:
        assert not Path(f"/sys/class/net/pd{Path(left[0]).name}h1").exists()
        ours = hosts.claim.folder
        assert _is_left(*left) == [ours == Path(left[0]), ours == Path(left[0]), False]
    assert not ours.exists()
    assert Path("/proc/mounts").read_text() == mounts


@pytest.mark.usefixtures("make_hosts")
def test_the_command_line_makes_a_set_that_lasts_until_it_is_taken_down(tmp_path):
    testbed = [sys.executable, _TREE / "tests/testbed/hosts"]
    subprocess.run([*testbed, "up", tmp_path, "2", "login_shell=/bin/sh"], check=True)
    subprocess.run([*testbed, "cut", tmp_path, "h2"], check=True)
    told = subprocess.check_output([*testbed, "console", tmp_path, "h2", "hostname"], text=True)
    assert told == "h2\n"
    subprocess.run([*testbed, "down", tmp_path], check=True)
    assert claims_at(tmp_path) == []


@pytest.mark.usefixtures("make_hosts")
def test_many_cheap_hosts_are_there_for_as_long_as_they_are_wanted(tmp_path):
    with new_loopback_hosts(tmp_path, 20) as hosts:
        for name in ("n1", "n16", "n20"):
            words = ["ssh", "-n", "-F", hosts.ssh_config, name, "echo $SSH_CONNECTION $HOME"]
            told = subprocess.check_output(words, text=True).split()
            assert told[2:] == [hosts.address(name), "2222", str(hosts.home)]
    words = ["ssh", "-n", "-F", hosts.ssh_config, "n1", "true"]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "Connection refused" in told.stderr
    assert not hosts.claim.folder.exists()
