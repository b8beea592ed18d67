"""A number for each Slurm cluster on this machine: its ports and its nodes' addresses follow from it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.hosts.process_id import start_ticks

# In memory: no cluster outlives the machine. Short, because the path of a socket has room for 107 bytes.
CLAIMS = Path("/dev/shm/pdctl-slurm")
MAX_NODES = 260
_FIRST_PORT = 61000  # above the kernel's own choice of ports, and above all that topologies name
_NUMBERS = range(1, 17)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Cluster `number` has `MAX_NODES` + 1 ports and two networks of 250 addresses to itself."""

    number: int

    @property
    def folder(self) -> Path:
        return CLAIMS / str(self.number)

    @property
    def base(self) -> Path:
        return Path(str(self._kept()["base"]))

    @property
    def is_abandoned(self) -> bool:
        """Its maker was killed before it could take the cluster down."""
        owner = self._kept()["owner"]
        return isinstance(owner, list) and owner[1] != start_ticks(owner[0])

    @property
    def controller_port(self) -> int:
        return _FIRST_PORT + (self.number - 1) * (MAX_NODES + 1)

    def node_port(self, index: int) -> int:
        """Node `index` counts from 1. All slurmds of a machine listen on all its addresses."""
        return self.controller_port + index

    def node_address(self, index: int) -> str:
        above, below = divmod(index - 1, 250)
        return f"127.77.{self.number * 2 + above}.{1 + below}"

    def _kept(self) -> dict[str, object]:
        return json.loads((self.folder / "claim.json").read_text())


def claim(base: Path, *, is_kept: bool) -> Claim:
    """Take a free number for the cluster at `base`. Unless kept, the cluster goes with this process."""
    CLAIMS.mkdir(exist_ok=True)
    owner = None if is_kept else [os.getpid(), start_ticks(os.getpid())]
    fresh = CLAIMS / f"fresh-{os.getpid()}-{os.urandom(4).hex()}"
    fresh.mkdir()
    (fresh / "claim.json").write_text(json.dumps({"base": str(base), "owner": owner}))
    for number in _NUMBERS:
        try:
            fresh.rename(CLAIMS / str(number))  # fails where a claim lies already
        except OSError:
            continue
        return Claim(number=number)
    raise RuntimeError(f"no free number for a Slurm cluster: see {CLAIMS}")


def all_claims() -> Iterator[Claim]:
    for folder in sorted(CLAIMS.iterdir()) if CLAIMS.is_dir() else ():
        if folder.name.isdigit() and (folder / "claim.json").is_file():
            yield Claim(number=int(folder.name))
