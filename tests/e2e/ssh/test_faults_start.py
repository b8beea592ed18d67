"""Hosts that nothing can be started on: `up` names each with its reason, and leaves all as they were.

Alone, a broken host is the first node, where the lock would lie. Together, they are told in one screen.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys
import termios
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.testbed.hosts.host import Host
from tests.testbed.hosts.host_set import HostSet
from tests.testbed.hosts.host_spec import HostSpec
from tests.testbed.hosts.ssh_files import make_key

pytestmark = pytest.mark.slow

TREE = Path(__file__).parents[3]
# Folders on the way to pdctl's own stay once they are made, as with any program: they are there before.
GOOD = HostSpec(files={"/root/.local/state/other": "of another program"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with one host, and what `up` says of it. In `login`, KEYS is the folder of odd keys."""

    told: str  # a pattern
    spec: HostSpec = field(default_factory=HostSpec)
    breaks: Callable[[Host], None] = lambda host: None  # until the end of the test
    login: str = ""  # `ssh` of the node


FAULTS: Mapping[str, Fault] = {
    "down": Fault(
        told=r"error\[PD516\]: down can't be reached: nothing answers at port 22 within 4 s",
        breaks=Host.blackhole,
    ),
    "mute": Fault(
        told=r"error\[PD517\]: mute can't be reached: port 22 takes connections but greets nobody within 4 s",
        breaks=Host.hang_sshd,
    ),
    "stranger": Fault(told=r"error\[PD518\]: stranger can't be reached: its host key is not known"),
    "changed": Fault(told=r"error\[PD519\]: changed can't be reached: its host key has changed"),
    "denied": Fault(
        told=r"error\[PD520\]: denied can't be reached: `root` may not log in",
        spec=HostSpec(accepts_key=False),
    ),
    "nobody": Fault(told=r"error\[PD520\]: nobody can't be reached: `ada` may not log in", login="user: ada"),
    "wrongkey": Fault(
        told=r"error\[PD520\]: wrongkey can't be reached: `root` may not log in",
        spec=HostSpec(accepts_key=False),
        login="identity_file: KEYS/other",
    ),
    "lockedkey": Fault(
        told=r"error\[PD521\]: lockedkey can't be reached: the key `.*/locked` has a passphrase",
        spec=HostSpec(accepts_key=False),
        login="identity_file: KEYS/locked",
    ),
    "behind": Fault(
        told=r"error\[PD522\]: behind can't be reached: the jump host `gate` can't be passed: nothing",
        login="proxy_jump: gate",
    ),
    "snakeless": Fault(
        told=r"error\[PD501\]: snakeless has no Python at `python3`", spec=HostSpec(has_python=False)
    ),
    "frozen": Fault(
        told=r"error\[PD501\]: cannot put the shim on frozen: .*Read-only file system",
        spec=HostSpec(is_home_read_only=True),
    ),
    "full": Fault(
        told=r"error\[PD501\]: cannot put the shim on full: .*No space left on device",
        spec=HostSpec(home_bytes=64 << 10),
    ),
}


@pytest.fixture(scope="module")
def hosts(make_hosts: Callable[..., HostSet]) -> HostSet:
    """`good`, a host for each fault, and the jump host `gate`."""
    hosts = make_hosts(good=GOOD, gate=HostSpec(), **{name: each.spec for name, each in FAULTS.items()})
    known = hosts.known_hosts.read_text().splitlines()
    key_of_good = known[0].split(maxsplit=1)[1]
    known = [line for line in known if not line.startswith(("stranger,", "changed,"))]
    changed = hosts["changed"]
    known.append(f"changed,{changed.address} {key_of_good}")
    hosts.known_hosts.write_text("\n".join(known) + "\n")
    make_key(hosts.base / "other")
    make_key(hosts.base / "locked")
    lock = ("ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", hosts.base / "locked")
    subprocess.run(lock, check=True)
    hosts["full"].try_console("sh", "-c", "cat /dev/zero > /root/filler")
    return hosts


@pytest.fixture
def topology(tmp_path: Path, hosts: HostSet) -> Callable[..., Path]:
    """A decode instance on each of the nodes named, the rest on `good`."""

    def write(*names: str, transport: str) -> Path:
        nodes = "".join(
            f"  - {{name: {name}, address: {hosts[name].address}, ssh: {{{login_of(name)}}}}}\n"
            for name in names
        )
        on = [name for name in names if name != "good"]
        file = tmp_path / "t.yaml"
        file.write_text(
            "schema: pdctl/v1\nname: far\nmodel: {path: none}\nengine: {kind: dummy}\n"
            "cluster:\n  executor: ssh\n"
            f"  ssh: {{config: {hosts.ssh_config}, transport: {transport}, connect_timeout_s: 4}}\n"
            f"  nodes:\n{nodes}"
            f"prefill: {{on: [good]}}\ndecode: {{instances: {len(on)}, on: [{', '.join(on)}]}}\n"
            f"router: {{on: good, python: {sys.executable}, env: {{PYTHONPATH: {TREE}}}}}\n"
        )
        return file

    def login_of(name: str) -> str:
        return FAULTS[name].login.replace("KEYS", str(hosts.base)) if name in FAULTS else ""

    return write


def _break(hosts: HostSet, names: Iterable[str]) -> None:
    for name in names:
        FAULTS[name].breaks(hosts[name])
        if name == "behind":
            hosts["gate"].blackhole()


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_host_is_named_with_its_reason_and_nothing_starts(
    operator, topology, hosts, left_behind, name
):
    ada, file = operator("ada"), topology(name, "good", transport="fabric")
    _break(hosts, [name])
    told = ada.pdctl("up", file, code=1)
    assert re.search(FAULTS[name].told, told), told
    assert told.count("error[") == 1
    assert "note: nothing was started or stopped" in told
    # Refused, it has left nothing; and so does the question whether there is something to take down.
    assert left_behind() == []
    assert re.search(r"error\[PD(608|5..)\]", ada.pdctl("down", file, code=1))
    assert left_behind() == []


@pytest.mark.parametrize("transport", ["fabric", "openssh"])
def test_the_hint_about_host_keys_works_when_it_is_pasted(operator, topology, hosts, transport):
    ada, file = operator("ada"), topology("good", "stranger", "changed", transport=transport)
    own = ada.folder / "known hosts"
    own.write_text(hosts.known_hosts.read_text())
    file.write_text(file.read_text().replace("{config:", f"{{known_hosts: '{own}', config:"))
    told = ada.pdctl("doctor", file, code=1)
    commands = [line.strip() for line in told.splitlines() if line.startswith("      ssh")]
    assert [command.split()[0] for command in commands] == ["ssh", "ssh-keygen", "ssh"]
    for command in commands:
        _paste(command)
    told = ada.pdctl("doctor", file, "--json")
    assert [each["code"] for each in json.loads(told)["verdicts"] if each["check"] == "reach"] == [None]


def _paste(command: str) -> None:
    """As at a terminal where every question is answered with yes."""
    terminal, end = os.openpty()
    typed = subprocess.Popen(
        ["sh", "-c", command],
        stdin=end,
        stdout=end,
        stderr=end,
        preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
    )
    os.close(end)
    screen = b""
    with contextlib.suppress(OSError):  # the terminal's end, when the command has ended
        while shown := os.read(terminal, 4096):
            screen += shown
            if b"fingerprint])?" in shown:
                os.write(terminal, b"yes\n")
    os.close(terminal)
    assert typed.wait(30) == 0, screen.decode()


@pytest.mark.parametrize("transport", ["fabric", "openssh"])
def test_all_faults_are_told_in_one_screen_which_is_the_same_whoever_logs_in(
    operator, topology, hosts, left_behind, golden, transport
):
    ada, file = operator("ada"), topology("good", *FAULTS, transport=transport)
    _break(hosts, FAULTS)
    told = ada.pdctl("up", file, code=1)
    told = re.sub(r"SHA256:[A-Za-z0-9+/]+", "SHA256:…", told.replace(str(hosts.base), "/keys"))
    golden("screens/ssh_faults_at_start.txt", re.sub(r"10\.77\.\d+\.", "10.77.0.", told))
    assert left_behind() == []
    assert "error[PD608]: no deployment `far` is known" in ada.pdctl("down", file, code=1)
    assert left_behind() == []
