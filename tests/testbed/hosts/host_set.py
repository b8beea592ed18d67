"""Several hosts on one network of their own, with the files that ssh needs to reach them.

    with new_hosts(base, {"h1": HostSpec(), "h2": HostSpec(login_shell="/usr/bin/fish")}) as hosts:
        hosts["h2"].cut()

Each host has its own network card on a bridge of this machine, its own processes, names and boot id, a disk
that is this machine's own with the host's changes over it, and a real sshd. The tree that the tests belong to
lies on each at the same path, read only. Needs root on Linux, and the packages in `DEBIAN_PACKAGES`.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.testbed.hosts.claim import Claim, claims_at
from tests.testbed.hosts.host import Host
from tests.testbed.hosts.host_spec import VOLATILE, HostSpec, write_host
from tests.testbed.hosts.lifetime import new_claim, take_down
from tests.testbed.hosts.ssh_files import SSH_CONFIG, make_key

DEBIAN_PACKAGES = ("iproute2", "nftables", "openssh-client", "openssh-server", "procps", "tini")
_PROGRAMS = ("ip", "nft", "tc", "ssh", "ssh-keygen", "/usr/sbin/sshd", "pgrep", "tini", "unshare", "nsenter")
_TREE = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSet:
    """`base` has `ssh_config`, `known_hosts` and the key `id`; hosts are found by name."""

    base: Path
    claim: Claim
    hosts: Mapping[str, Host]

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self.hosts.values())

    @property
    def ssh_config(self) -> Path:
        return self.base / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        return self.base / "known_hosts"

    @property
    def key(self) -> Path:
        return self.base / "id"

    def new_host_key(self, name: str) -> None:
        """From its next boot on, that host shows another key than `known_hosts` says."""
        host_key = self.claim.folder / name / "up/etc/ssh/testbed_host_key"
        host_key.unlink()
        make_key(host_key)


@contextlib.contextmanager
def new_hosts(base: Path, specs: Mapping[str, HostSpec]) -> Iterator[HostSet]:
    """Hosts for as long as the context lasts, or until another set is made after this process was killed."""
    hosts = up(base, specs, is_kept=False)
    try:
        yield hosts
    finally:
        take_down(hosts.claim)


def missing_programs() -> list[str]:
    return [each for each in _PROGRAMS if shutil.which(each) is None]


def up(base: Path, specs: Mapping[str, HostSpec], *, is_kept: bool) -> HostSet:
    """Boot a set; whatever was at `base` before goes first. A kept one lasts until `down`."""
    claim = new_claim(base, is_kept=is_kept)
    try:
        hosts = {
            name: Host(name=name, index=index, spec=spec, claim=claim)
            for index, (name, spec) in enumerate(specs.items(), 1)
        }
        hosts_set = HostSet(base=base, claim=claim, hosts=hosts)
        _write_set(hosts_set)
        _make_bridge(claim)
        for step in (Host.switch_on, Host.plug_in, Host.wait_for_sshd):
            for host in hosts_set:
                step(host)
    except BaseException:
        take_down(claim)
        raise
    return hosts_set


def find(base: Path) -> HostSet:
    """A set that another process has made."""
    (claim,) = claims_at(base)
    specs = json.loads((claim.folder / "specs.json").read_text())
    hosts = {
        name: Host(name=name, index=index, spec=HostSpec(**spec), claim=claim)
        for index, (name, spec) in enumerate(specs.items(), 1)
    }
    return HostSet(base=base, claim=claim, hosts=hosts)


def _write_set(hosts: HostSet) -> None:
    claim, base = hosts.claim, hosts.base
    specs = {host.name: asdict(host.spec) for host in hosts}
    (claim.folder / "specs.json").write_text(json.dumps(specs))
    if not hosts.key.is_file():
        make_key(hosts.key)
    names = "\n".join(f"{host.address} {host.name}\n{host.address6} {host.name}" for host in hosts)
    known, config = [], [SSH_CONFIG.format(base=base)]
    for host in hosts:
        for part in ("up/etc/ssh", "work", "root"):
            (host.folder / part).mkdir(parents=True)
        write_host(
            host.spec,
            host.folder,
            public_key=hosts.key.with_suffix(".pub").read_text(),
            hosts_file=f"127.0.0.1 localhost {host.spec.hostname or host.name}\n::1 localhost\n{names}\n",
            read_only=_seen_by_hosts(),
        )
        public = make_key(host.folder / "up/etc/ssh/testbed_host_key")
        known.append(f"{host.name},{host.address},{host.address6} {public}")
        config.append(f"Host {host.name}\n  HostName {host.address}\n  User {host.spec.user}\n")
        _write_environment(host)
    hosts.known_hosts.write_text("\n".join(known) + "\n")
    hosts.ssh_config.write_text("\n".join(config))


def _seen_by_hosts() -> list[Path]:
    """The tree, as it is while it changes, and this interpreter where a host would hide it."""
    interpreter = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    return [
        _TREE,
        *(
            path
            for path in sorted(interpreter)
            if not path.is_relative_to(_TREE) and any(path.is_relative_to(place) for place in VOLATILE)
        ),
    ]


def _write_environment(host: Host) -> None:
    environment = {
        "HOST_NAME": host.spec.hostname or host.name,
        "ADDRESS": host.address,
        "ADDRESS6": host.address6,
        "GATEWAY": host.claim.address(0),
        "GATEWAY6": host.claim.address6(0),
    }
    lines = "".join(f"{name}='{text}'\n" for name, text in environment.items())
    (host.folder / "host.env").write_text(lines, encoding="utf-8")


def _make_bridge(claim: Claim) -> None:
    lines = (
        f"link add {claim.bridge} type bridge forward_delay 0",
        f"addr add {claim.address(0)}/24 dev {claim.bridge}",
        f"addr add {claim.address6(0)}/64 dev {claim.bridge} nodad",
        f"link set {claim.bridge} up",
    )
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines).encode(), check=True)
