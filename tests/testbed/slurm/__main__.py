"""A Slurm to look around in by hand: `python tests/testbed/slurm VERB BASE ...`, as root.

    up BASE N [NAME=NUMBER ...]    start nodes node1 … nodeN, with numbers of SlurmSpec such as gpus=4
    heal BASE                      end all jobs, start what was killed, resume all nodes
    power-off | lose | drain | resume BASE NODE
    down BASE                      nothing is left on this machine

Then `export SLURM_CONF=BASE/etc/slurm.conf` and use Slurm. A cluster lasts until `down`, or until the next
`up` at the same BASE.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[3])

from tests.testbed.slurm import cluster as clusters  # noqa: E402
from tests.testbed.slurm.claim import CLAIMS, Claim  # noqa: E402
from tests.testbed.slurm.cluster import SlurmCluster  # noqa: E402
from tests.testbed.slurm.spec import SlurmSpec  # noqa: E402

_ACTS = {
    "power-off": SlurmCluster.power_off,
    "lose": SlurmCluster.lose,
    "drain": SlurmCluster.drain,
    "resume": SlurmCluster.resume,
}


def main(verb: str, base: Path, *words: str) -> None:
    if verb == "up":
        numbers = {name: int(text) for name, text in (word.split("=", 1) for word in words[1:])}
        made = clusters.up(base, SlurmSpec(num_nodes=int(words[0]), **numbers), is_kept=True)
        (base / "spec.json").write_text(json.dumps(asdict(made.spec)))
        print(f"export SLURM_CONF={base}/etc/slurm.conf")
    elif verb == "down":
        clusters.down(base)
    elif verb == "heal":
        _find(base).heal()
    else:
        _ACTS[verb](_find(base), words[0])


def _find(base: Path) -> SlurmCluster:
    (number,) = CLAIMS.at(base)
    spec = SlurmSpec(**json.loads((base / "spec.json").read_text()))
    return SlurmCluster(base=base, claim=Claim(number=number), spec=spec)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]).absolute(), *sys.argv[3:])
