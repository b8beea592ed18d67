"""The script that a submitted job runs."""

from __future__ import annotations

from pathlib import Path

from pdctl.executors.slurm_job.batch_script import batch_script
from pdctl.executors.slurm_job.home import Home

HOME = Home(path=Path("/scratch/my runs/pdctl-demo"))


def script(**environ: str) -> str:
    directives = ["#SBATCH --job-name=pdctl-demo", "#SBATCH --nodes=2"]
    return batch_script("demo", directives, python="/opt/v/python", home=HOME, environ=environ)


def test_it_becomes_the_steward():
    assert script().splitlines() == [
        "#!/bin/bash",
        "#SBATCH --job-name=pdctl-demo",
        "#SBATCH --nodes=2",
        "",
        "# Made by `pdctl up` for the deployment demo. It needs topology.json beside it.",
        "cd '/scratch/my runs/pdctl-demo' || exit 1",
        "exec /opt/v/python -m pdctl up '/scratch/my runs/pdctl-demo/topology.json' --foreground",
    ]


def test_it_carries_what_the_steward_needs_and_nothing_else():
    lines = script(PDCTL_STATE_DIR="/my state", HF_TOKEN="secret").splitlines()
    assert "export PDCTL_STATE_DIR='/my state'" in lines
    assert not any("secret" in line for line in lines)
