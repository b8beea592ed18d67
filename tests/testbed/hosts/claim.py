"""A number for each set of hosts on this machine: its name, its networks and its folder follow from it."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.hosts.process_id import start_ticks

# In memory: an overlay's upper folder must not lie on another overlay, and no host outlives the machine.
CLAIMS = Path("/dev/shm/pdctl-hosts")
_NUMBERS = range(1, 255)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Set `number` has 10.77.number.0/24, fd77:0:0:number::/64 and 127.number.0.0/16 to itself."""

    number: int

    @property
    def folder(self) -> Path:
        return CLAIMS / str(self.number)

    @property
    def bridge(self) -> str:
        return f"pdbr{self.number}"

    def port_name(self, index: int) -> str:
        """Of the bridge, where host `index` is plugged in."""
        return f"pd{self.number}h{index}"

    def address(self, index: int) -> str:
        """0 is the bridge, this machine itself."""
        return f"10.77.{self.number}.{1 + index}"

    def address6(self, index: int) -> str:
        return f"fd77:0:0:{self.number:x}::{1 + index:x}"

    def loopback(self, index: int) -> str:
        return f"127.{self.number}.{index // 250}.{1 + index % 250}"

    def kept(self) -> dict[str, object] | None:
        """None when it was given back meanwhile."""
        try:
            return json.loads((self.folder / "claim.json").read_text())
        except FileNotFoundError:
            return None


def claim(base: Path, *, is_kept: bool) -> Claim:
    """Take a free number for the set at `base`. Unless kept, the set goes with this process."""
    CLAIMS.mkdir(exist_ok=True)
    owner = None if is_kept else [os.getpid(), start_ticks(os.getpid())]
    fresh = CLAIMS / f"fresh-{os.getpid()}-{os.urandom(4).hex()}"
    fresh.mkdir()
    (fresh / "claim.json").write_text(json.dumps({"base": str(base), "owner": owner}))
    taken = _networks_of_this_machine()
    for number in _NUMBERS:
        if any(network.overlaps(ipaddress.ip_network(f"10.77.{number}.0/24")) for network in taken):
            continue
        try:
            fresh.rename(CLAIMS / str(number))  # fails where a claim lies already
        except OSError:
            continue
        return Claim(number=number)
    shutil.rmtree(fresh)
    raise RuntimeError("no free network for a set of hosts: see `ip addr` and /dev/shm/pdctl-hosts")


def claims_at(base: Path) -> list[Claim]:
    return [each for each in _claims() if (kept := each.kept()) and kept["base"] == str(base)]


def abandoned_claims() -> list[Claim]:
    """Sets whose process was killed before it could take them down."""
    return [each for each in _claims() if (kept := each.kept()) and _is_dead(kept["owner"])]


def _claims() -> Iterator[Claim]:
    for folder in CLAIMS.iterdir() if CLAIMS.is_dir() else ():
        if folder.name.isdigit():
            yield Claim(number=int(folder.name))


def _is_dead(owner: object) -> bool:
    return isinstance(owner, list) and owner[1] != start_ticks(owner[0])


def _networks_of_this_machine() -> list[ipaddress.IPv4Network]:
    shown = subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, check=True).stdout
    return [
        ipaddress.IPv4Interface(f"{address['local']}/{address['prefixlen']}").network
        for interface in json.loads(shown)
        for address in interface["addr_info"]
    ]
