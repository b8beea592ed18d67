"""A job whose batch script does without pdctl: all that surrounds the plan in it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdctl.executors.slurm_job.container import container_options, in_container
from pdctl.executors.slurm_job.request import job_request, signal_lead_s
from pdctl.executors.slurm_job.srun import STEP_OPTIONS
from pdctl.inventory import declared
from pdctl.topology.model import Topology
from pdctl.topology.slurm import Container, Slurm

# Stands in words of the job for its folder, which has the job's number in its name.
RUN_DIR = "pdctl--run-dir--"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    directives: tuple[str, ...]  # `#SBATCH --key=value`
    node_names: tuple[str, ...]  # in the order of the inventory, by which marks of addresses count
    are_named: bool  # by the document; else the nodes are those of the allocation, in Slurm's order
    step_options: tuple[str, ...]  # of `srun`
    launcher: tuple[str, ...]  # argv before that of a step's command: the container around it
    python: str  # on the nodes, for the shim
    base_dir: str | None  # what login node and nodes share; None: where the script is submitted
    node_dir: str | None  # on each node, for run directories; None: in the job's folder
    signal_lead_s: int  # how long before its time limit the job is told to end


def batch_job(topology: Topology, *, token: str) -> BatchJob:
    """`token` becomes the comment of the job."""
    cluster, slurm = topology.cluster, topology.cluster.slurm or Slurm()
    container = _with_node_dir(slurm)
    return BatchJob(
        directives=tuple(job_request(topology, token=token).directives()),
        node_names=tuple(node.name for node in declared(cluster).nodes),
        are_named=not isinstance(cluster.nodes, int),
        step_options=(*STEP_OPTIONS, *container_options(container, RUN_DIR), *slurm.srun_args),
        launcher=in_container(container, RUN_DIR, ()),
        python=slurm.python,
        base_dir=slurm.run_dir,
        node_dir=slurm.node_dir,
        signal_lead_s=signal_lead_s(topology),
    )


def _with_node_dir(slurm: Slurm) -> Container | None:
    """The container with the folder of run directories mounted, where it isn't in that of the job."""
    container, node_dir = slurm.container, slurm.node_dir
    if container is None or node_dir is None:
        return container
    return replace(container, mounts=(*container.mounts, f"{node_dir}:{node_dir}"))
