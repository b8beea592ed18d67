"""A number for each Slurm cluster on this machine: its ports and its nodes' addresses follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.testbed.claims import Claims

MAX_NODES = 260
_FIRST_PORT = 61000  # above the kernel's own choice of ports, and above all that topologies name
# A short path: that of a socket has room for 107 bytes.
CLAIMS = Claims(folder=Path("/dev/shm/pdctl-slurm"), numbers=range(1, 17))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Cluster `number` has `MAX_NODES` + 1 ports and two networks of 250 addresses to itself."""

    number: int

    @property
    def folder(self) -> Path:
        return CLAIMS.place(self.number)

    @property
    def controller_port(self) -> int:
        return _FIRST_PORT + (self.number - 1) * (MAX_NODES + 1)

    def node_port(self, index: int) -> int:
        """Node `index` counts from 1. All slurmds of a machine listen on all its addresses."""
        return self.controller_port + index

    def node_address(self, index: int) -> str:
        above, below = divmod(index - 1, 250)
        return f"127.77.{self.number * 2 + above}.{1 + below}"


def claim(base: Path, *, is_kept: bool) -> Claim:
    """Take a free number for the cluster at `base`. Unless kept, the cluster goes with this process."""
    number = CLAIMS.take(base, is_kept=is_kept)
    if number is None:
        raise RuntimeError(f"no free number for a Slurm cluster: see {CLAIMS.folder}")
    return Claim(number=number)
