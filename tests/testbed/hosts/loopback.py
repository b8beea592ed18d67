"""Many cheap hosts: sshd at addresses of 127.0.0.0/8, all on this machine's own files and processes.

    with new_loopback_hosts(base, 200) as hosts:
        ...  # `n1` … `n200` in `hosts.ssh_config`

For how many can be worked on at a time, not for what can go wrong on one: they share a home, which is not the
user's own, and a boot id. Needs root, for sshd. One sshd serves 16 addresses, which is as many as it takes.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.hosts.claim import Claim
from tests.testbed.hosts.lifetime import new_claim, take_down
from tests.testbed.hosts.process_id import record
from tests.testbed.hosts.ssh_files import SSH_CONFIG, make_key

PORT = 2222
_ADDRESSES_PER_SSHD = 16
_DEADLINE_S = 30.0

_SSHD = """\
Port {port}
{listen}
HostKey {set}/host_key
PidFile {folder}/pid
AuthorizedKeysFile {set}/keys
SetEnv HOME={set}/home
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
MaxStartups 1000
MaxSessions 1000
UseDNS no
PrintMotd no
PrintLastLog no
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopbackHosts:
    """`base` has `ssh_config`, `known_hosts` and the key `id`."""

    base: Path
    claim: Claim
    names: tuple[str, ...]

    @property
    def ssh_config(self) -> Path:
        return self.base / "ssh_config"

    @property
    def home(self) -> Path:
        """Of all hosts."""
        return self.claim.folder / "home"

    def address(self, name: str) -> str:
        return self.claim.loopback(self.names.index(name))


@contextlib.contextmanager
def new_loopback_hosts(base: Path, num_hosts: int, *, sshd: str = "") -> Iterator[LoopbackHosts]:
    """Hosts for as long as the context lasts, or until another set is made after this process was killed.

    `sshd` has more lines of its configuration.
    """
    claim = new_claim(base, is_kept=False)
    try:
        hosts = LoopbackHosts(base=base, claim=claim, names=tuple(f"n{n + 1}" for n in range(num_hosts)))
        _write(hosts)
        addresses = [claim.loopback(index) for index in range(num_hosts)]
        for start in range(0, num_hosts, _ADDRESSES_PER_SSHD):
            _start_sshd(claim.folder / f"sshd-{start}", addresses[start : start + _ADDRESSES_PER_SSHD], sshd)
        yield hosts
    finally:
        take_down(claim)


def _write(hosts: LoopbackHosts) -> None:
    folder = hosts.claim.folder
    hosts.home.mkdir()
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    key = hosts.base / "id"
    if not key.is_file():
        make_key(key)
    public = make_key(folder / "host_key")
    (folder / "keys").write_text(key.with_suffix(".pub").read_text())
    addresses = [hosts.address(name) for name in hosts.names]
    known = [f"[{address}]:{PORT} {public}\n" for address in addresses]
    (hosts.base / "known_hosts").write_text("".join(known))
    config = [SSH_CONFIG.format(base=hosts.base), f"  User root\n  Port {PORT}\n"]
    config += [
        f"Host {name}\n  HostName {address}\n" for name, address in zip(hosts.names, addresses, strict=True)
    ]
    hosts.ssh_config.write_text("".join(config))


def _start_sshd(folder: Path, addresses: Sequence[str], more: str) -> None:
    folder.mkdir()
    listen = "\n".join(f"ListenAddress {address}" for address in addresses)
    (folder / "sshd.conf").write_text(
        _SSHD.format(port=PORT, listen=listen, folder=folder, set=folder.parent) + more
    )
    subprocess.run(["/usr/sbin/sshd", "-f", folder / "sshd.conf", "-E", folder / "log"], check=True)
    # It goes into the background when it listens; its pid file comes a moment later.
    pid_file, deadline = folder / "pid", time.monotonic() + _DEADLINE_S
    while not (pid_file.is_file() and pid_file.read_text().endswith("\n")):
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.01)
    record(folder / "init", int(pid_file.read_text()))
