"""The section `cluster.slurm` as frozen dataclasses: what a job asks Slurm for, and where it keeps its files.

`None` means that the document doesn't say; the site profile may, else Slurm decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

ContainerRuntime = Literal["pyxis", "apptainer"]
NO_SITE = "none"  # as `site`: there is no profile, or it has been applied
NO_GRES = "none"  # as `gres`: ask for no accelerators, because nodes come whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What every process runs in."""

    runtime: ContainerRuntime
    image: str
    mounts: tuple[str, ...] = ()  # `SOURCE:TARGET[:OPTIONS]`


@dataclass(frozen=True, slots=True, kw_only=True)
class HetGroup:
    """Nodes of one shape, in a job with several. None: as `Slurm` or the cluster has it."""

    nodes: int
    devices_per_node: int | None = None
    partition: str | None = None
    constraint: str | None = None
    nodelist: tuple[str, ...] = ()
    gres: str | None = None
    gpus_per_node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """How executor `slurm` submits a job and starts steps in it."""

    job_name: str | None = None  # None: `pdctl-` and the deployment's name
    run_dir: str | None = None  # shared by login node and nodes; None: `slurm` in pdctl's state directory
    node_dir: str | None = None  # on each node, for run directories; None: in `run_dir`
    site: str | None = None  # file of the site profile; None: where `pdctl/executors/slurm_job/site.py` looks
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time_limit: str | None = None  # as Slurm reads it
    reservation: str | None = None
    constraint: str | None = None
    exclude: tuple[str, ...] = ()  # names, also folded: `gpu[01-04]`
    nodelist: tuple[str, ...] = ()  # likewise
    exclusive: bool | None = None  # whole nodes; None: as the site has it, else whole
    cpus_per_node: int | None = None
    memory: str | None = None  # of each node, as `--mem` reads it; `0` is all
    gres: str | None = None  # `gpu:h100:8`, or `NO_GRES`
    gpus_per_node: str | None = None  # `8` or `h100:8`
    segment: int | None = None  # nodes that must lie in one block of the network
    switches: str | None = None  # `1@30:00`: at most one switch, wait that long for it
    het_groups: tuple[HetGroup, ...] = ()  # empty: all nodes are alike
    requeue: bool = True
    no_kill: bool = True  # the job goes on when one of its nodes fails
    signal_lead_s: int | None = (
        None  # TERM comes that long before the time limit; None: as long as ending takes
    )
    keep_on_failure: bool = False  # the job stays when the deployment can't serve any more
    sbatch_args: tuple[str, ...] = ()  # `--key=value`
    srun_args: tuple[str, ...] = ()  # likewise, of each step
    container: Container | None = None
    python: str = "python3"  # on the nodes, runs the shim
    pdctl_python: str | None = None  # on the first node, has pdctl; None: the interpreter that submits
    command_timeout_s: float = 30.0  # of each command of Slurm


def as_document(slurm: Slurm) -> dict[str, Any]:
    """By the names of the topology, as plain values; what is left open is left out."""
    return _stated(asdict(slurm))


def _stated(value: Any) -> Any:
    match value:
        case Mapping():
            parts = ((name, _stated(part)) for name, part in value.items())  # pyright: ignore
            return {name: part for name, part in parts if part not in (None, [])}  # pyright: ignore
        case tuple() | list():
            return [_stated(part) for part in value]  # pyright: ignore
        case _:
            return value
