"""One host: a machine of its own as far as ssh, processes, files and the network can tell."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.testbed.hosts.claim import Claim
from tests.testbed.hosts.host_spec import HostSpec
from tests.testbed.hosts.process_id import end, record, recorded

_HERE = Path(__file__).parent
_NAMESPACES = ("--mount", "--uts", "--ipc", "--pid", "--net")
BOOT_DEADLINE_S = 30.0


@dataclass(slots=True, kw_only=True)
class Host:
    """`index` counts from 1 within the set. The folder holds the disk, and `init`: its first process."""

    name: str
    index: int
    spec: HostSpec
    claim: Claim
    _power: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return self.claim.address(self.index)

    @property
    def address6(self) -> str:
        return self.claim.address6(self.index)

    @property
    def folder(self) -> Path:
        return self.claim.folder / self.name

    @property
    def mac(self) -> str:
        return f"02:77:{self.claim.number:02x}:00:{self.index // 256:02x}:{self.index % 256:02x}"

    @property
    def nic(self) -> str:
        """The host's end of the cable is `eth0`; this is the other one, on the bridge."""
        return self.claim.port_name(self.index)

    @property
    def init_pid(self) -> int:
        """As this machine counts."""
        pid = recorded(self.folder / "init")
        assert pid is not None, f"{self.name} is off"
        return pid

    def path(self, path: str) -> Path:
        """A file of the running host, as this machine reaches it."""
        return Path(f"/proc/{self.init_pid}/root{path}")

    # Power

    def boot(self) -> None:
        """Returns when sshd answers. A new boot id; the disk is as it was, /tmp and /run are empty."""
        self.switch_on()
        self.plug_in()
        self.wait_for_sshd()

    def switch_on(self) -> None:
        """The host waits for its network card then. Three steps, so that a set boots all at once."""
        assert recorded(self.folder / "init") is None, f"{self.name} is on: switch it off first"
        command = ["unshare", *_NAMESPACES, "--kill-child", "--fork", "--propagation", "private"]
        with (self.folder / "boot.log").open("ab") as log:
            self._power = subprocess.Popen(
                [*command, "sh", _HERE / "boot.sh", self.folder],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        children = Path(f"/proc/{self._power.pid}/task/{self._power.pid}/children")
        _wait_until(lambda: bool(children.read_text()), f"{self.name} has no first process")
        record(self.folder / "init", int(children.read_text()))

    def plug_in(self) -> None:
        _ip(
            # The same card after a reboot: others remember its number for up to a minute.
            f"link add {self.nic} type veth peer name eth0 address {self.mac} netns {self.init_pid}",
            f"link set {self.nic} master {self.claim.bridge} up",
        )
        assert self._power is not None
        assert self._power.stdin is not None
        with self._power.stdin as console:
            console.write(b"plugged in\n")

    def wait_for_sshd(self) -> None:
        _wait_until(self._has_banner, f"sshd of {self.name} does not answer: see {self.folder}/boot.log")

    def power_off(self) -> None:
        """As if the plug was pulled: no packet tells anybody."""
        self.cut()
        self.kill()
        _run("ip", "link", "del", self.nic)  # the kernel removes it too, some time after the last process

    def kill(self) -> None:
        """End all processes, and with the last one the host's namespaces. No fault when it is off."""
        end(self.folder / "init")
        if self._power is not None:
            self._power.wait()

    def reboot(self) -> None:
        self.power_off()
        self.boot()

    # Network

    def cut(self) -> None:
        _ip(f"link set {self.nic} down")

    def blackhole(self, *peers: Host) -> None:
        """Drop all that comes from these peers, from everybody without any; connections just hang."""
        self._filter([f"{source} drop" for source in _sources(peers)])

    def refuse(self, port: int, *peers: Host) -> None:
        """Answer as if nothing listened there."""
        self._filter([f"{source} tcp dport {port} reject with tcp reset" for source in _sources(peers)])

    def slow(self, rate: str) -> None:
        """Both directions, at a rate such as `1mbit`."""
        shape = ("root", "tbf", "rate", rate, "burst", "10k", "latency", "400ms")
        self.console("tc", "qdisc", "replace", "dev", "eth0", *shape)
        subprocess.run(["tc", "qdisc", "replace", "dev", self.nic, *shape], check=True)

    def lose(self, percent: int) -> None:
        """Drop this share of the packets that come in, by chance."""
        self._filter([f'iifname "eth0" numgen random mod 100 < {percent} drop'])

    def heal(self) -> None:
        """Undo whatever was done to the network and to sshd."""
        _ip(f"link set {self.nic} up")
        self.console("nft", "flush", "ruleset")
        for run in (self.try_console, _run):
            run("tc", "qdisc", "del", "dev", "eth0" if run == self.try_console else self.nic, "root")
        self.wake_sshd()

    # sshd

    def hang_sshd(self, *, sessions: bool = False) -> None:
        """It accepts TCP and says nothing. With `sessions`, connections that are open hang too."""
        self._signal_sshd(signal.SIGSTOP, sessions=sessions)

    def wake_sshd(self) -> None:
        self._signal_sshd(signal.SIGCONT, sessions=True)

    # Inside

    def console(self, *argv: str, stdin: str = "") -> str:
        """Run a command as root, without any network; its output. It must succeed."""
        done = self.try_console(*argv, stdin=stdin)
        assert done.returncode == 0, f"{argv} on {self.name}: {done.stderr}"
        return done.stdout

    def try_console(self, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        enter = ("nsenter", "-t", str(self.init_pid), "-m", "-u", "-i", "-p", "-n", "-r", "--wd")
        return _run(*enter, *argv, stdin=stdin)

    def _filter(self, rules: list[str]) -> None:
        lines = ["add table inet testbed", "add chain inet testbed in { type filter hook input priority 0; }"]
        lines += [f"add rule inet testbed in {rule}" for rule in rules]
        self.console("nft", "-f", "-", stdin="\n".join(lines))

    def _signal_sshd(self, number: signal.Signals, *, sessions: bool) -> None:
        word = f"-{number.name[3:]}"
        if sessions:  # some of which may end just now
            self.console("pkill", word, "-x", "sshd")
        else:
            self.console("kill", word, self.path("/run/sshd.pid").read_text().strip())

    def _has_banner(self) -> bool:
        assert self._power is None or self._power.poll() is None, (self.folder / "boot.log").read_text()
        with contextlib.suppress(OSError), socket.create_connection((self.address, 22), timeout=1) as peer:
            return peer.recv(4) == b"SSH-"
        return False


def _sources(peers: tuple[Host, ...]) -> list[str]:
    if not peers:
        return ['iifname "eth0"']
    return [f"{family} saddr {each}" for peer in peers for family, each in _addresses(peer)]


def _addresses(host: Host) -> list[tuple[str, str]]:
    return [("ip", host.address), ("ip6", host.address6)]


def _ip(*lines: str) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines).encode(), check=True)


def _run(*argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def _wait_until(is_true: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + BOOT_DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline, problem
        time.sleep(0.01)
