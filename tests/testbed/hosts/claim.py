"""A number for each set of hosts on this machine: its name, its networks and its folder follow from it."""

from __future__ import annotations

import ipaddress
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.claims import Claims

# In memory also because an overlay's upper folder must not lie on another overlay.
CLAIMS = Claims(folder=Path("/dev/shm/pdctl-hosts"), numbers=range(1, 255))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Set `number` has 10.77.number.0/24, fd77:0:0:number::/64 and 127.number.0.0/16 to itself."""

    number: int

    @property
    def folder(self) -> Path:
        return CLAIMS.place(self.number)

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


def claim(base: Path, *, is_kept: bool) -> Claim:
    """Take a free number for the set at `base`. Unless kept, the set goes with this process."""
    taken = _networks_of_this_machine()

    def is_free(number: int) -> bool:
        wanted = ipaddress.ip_network(f"10.77.{number}.0/24")
        return not any(network.overlaps(wanted) for network in taken)

    number = CLAIMS.take(base, is_kept=is_kept, is_free=is_free)
    if number is None:
        raise RuntimeError(f"no free network for a set of hosts: see `ip addr` and {CLAIMS.folder}")
    return Claim(number=number)


def claims_at(base: Path) -> list[Claim]:
    return [Claim(number=number) for number in CLAIMS.at(base)]


def abandoned_claims() -> list[Claim]:
    """Sets whose process was killed before it could take them down."""
    return [Claim(number=number) for number, _ in CLAIMS.abandoned()]


def _networks_of_this_machine() -> list[ipaddress.IPv4Network]:
    shown = subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, check=True).stdout
    return [
        ipaddress.IPv4Interface(f"{address['local']}/{address['prefixlen']}").network
        for interface in json.loads(shown)
        for address in interface["addr_info"]
    ]
