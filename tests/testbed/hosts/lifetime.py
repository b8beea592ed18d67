"""How long a set lasts: until its maker takes it down, or the next set does so after its maker's end."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.testbed.hosts.claim import CLAIMS, Claim, abandoned_claims, claim, claims_at
from tests.testbed.hosts.process_id import end


def new_claim(base: Path, *, is_kept: bool) -> Claim:
    """Room for a set at `base`. What was there before goes, and what killed processes have left."""
    base.mkdir(parents=True, exist_ok=True)
    down(base)
    for abandoned in abandoned_claims():
        take_down(abandoned)
    return claim(base, is_kept=is_kept)


def down(base: Path) -> None:
    for found in claims_at(base):
        take_down(found)


def take_down(claim: Claim) -> None:
    """All of a set is found by its number, however far it got: processes, network, files."""
    for record in claim.folder.glob("*/init"):
        end(record)
    # A link outlives its host while packets of a connection there wait to be sent again.
    ports = [path.name for path in Path("/sys/class/net").glob(f"{claim.port_name(0)[:-1]}*")]
    for link in (claim.bridge, *ports):
        subprocess.run(["ip", "link", "del", link], capture_output=True, check=False)
    CLAIMS.give_back(claim.number)
