"""The list of bad nodes as an operator finds it: by the run directory of a topology, or of the site."""

from __future__ import annotations

import os

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.slurm_job.bad_nodes import BadNodes, bad_nodes_of
from pdctl.executors.slurm_job.site import settled, site_file
from pdctl.topology.anchor import anchored
from pdctl.topology.load import load
from pdctl.topology.model import Cluster
from pdctl.topology.site_profile import load_site
from pdctl.topology.slurm import Slurm


def bad_nodes(topology_path: str | None) -> BadNodes:
    """Raises `DiagnosticError` for a topology or a site profile that can't be read."""
    cluster = _of_site() if topology_path is None else _of_topology(topology_path)
    return bad_nodes_of(cluster.slurm, os.environ)


def _of_topology(path: str) -> Cluster:
    at_site = settled(anchored(load(path, environ=os.environ).require(), path), os.environ)
    if at_site.topology.cluster.executor != "slurm":
        raise DiagnosticError.one(
            "PD537",
            f"`{path}` doesn't run under Slurm",
            path="cluster.executor",
            help="name a topology with executor `slurm`, or none for the default run directory",
        )
    return at_site.topology.cluster


def _of_site() -> Cluster:
    file = site_file(Slurm(), os.environ)
    return Cluster(slurm=None if file is None else load_site(file).defaults)
