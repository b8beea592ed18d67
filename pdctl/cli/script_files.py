"""What `pdctl render` does besides drawing: look at the plan once more, say what a job is, write files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.executors.archive import shim_archive
from pdctl.executors.slurm_job.batch_job import batch_job
from pdctl.lifecycle.planning import Planned, open_plan
from pdctl.plan.consistency import inconsistencies
from pdctl.plan.model import LaunchPlan
from pdctl.views.sbatch_script import sbatch_script


def require_consistent(plan: LaunchPlan) -> None:
    """Raise `DiagnosticError` for a plan that contradicts itself: nobody looks after a written script."""
    found = inconsistencies(plan)
    if found:
        raise DiagnosticError(
            tuple(Diagnostic(code="PD508", message=str(each)) for each in found),
        )


def batch_scripts(planned: Planned) -> dict[str, str]:
    """The one script of a job, by its file's name. `DiagnosticError` (PD549) without executor `slurm`."""
    topology, digest = planned.topology, planned.plan.digest
    if topology.cluster.executor != "slurm":
        raise DiagnosticError.one(
            "PD549",
            f"a batch script for Slurm needs `executor: slurm`, not `{topology.cluster.executor}`",
            span=topology.source.value("cluster", "executor"),
            path="cluster.executor",
            help="for another cluster than the topology's: `--set cluster.executor=slurm`",
        )
    job = batch_job(topology, token=f"pdctl render {digest[:12]}")
    script = sbatch_script(open_plan(planned), job, shim_archive(), digest=digest)
    return {f"{topology.name}.sbatch": script}


def write_scripts(scripts: Mapping[str, str], directory: Path) -> list[str]:
    """Executable files under `directory`, which is made where it isn't there; their paths."""
    paths = [directory / name for name in scripts]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, scripts.values(), strict=True):
            path.write_text(text, encoding="utf-8")
            path.chmod(0o700)  # variables of the topology may be nobody else's business
    except OSError as error:
        raise DiagnosticError.one("PD509", f"can't write `{directory}`: {error.strerror}") from error
    return [str(path) for path in paths]
