"""The batch script of a job that pdctl submits: the steward, and nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from pdctl.executors.slurm_job.home import Home

# What the steward must have from whoever submits, also on sites whose jobs begin with an empty environment.
CARRIED = ("PDCTL_STATE_DIR", "PDCTL_FLAG_TABLES", "PYTHONPATH")


def batch_script(
    deployment: str,
    directives: Sequence[str],
    *,
    python: str,
    home: Home,
    environ: Mapping[str, str],
) -> str:
    """`directives` are lines that begin with `#SBATCH`. bash becomes the steward, so signals reach it."""
    carried = [f"export {name}={shlex.quote(environ[name])}" for name in CARRIED if name in environ]
    up = [python, "-m", "pdctl", "up", str(home.topology), "--foreground"]
    lines = [
        "#!/bin/bash",
        *directives,
        "",
        f"# Made by `pdctl up` for the deployment {deployment}. It needs {home.topology.name} beside it.",
        *carried,
        f"cd {shlex.quote(str(home.path))} || exit 1",
        f"exec {shlex.join(up)}",
    ]
    return "\n".join(lines) + "\n"
