"""The nodes of a topology as a job really has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.slurm_job.commands import JobNode
from pdctl.hostlist import fold
from pdctl.inventory import Inventory, Node, declared
from pdctl.topology.model import Cluster

NODES_CODE = "PD540"


def nodes_of(cluster: Cluster, held: Sequence[JobNode]) -> Inventory:
    """A bare number of nodes takes the job's first ones, in Slurm's order; named ones must be among them."""
    found = _named(cluster, held) if not isinstance(cluster.nodes, int) else _numbered(cluster, held)
    python = None if cluster.slurm is None else cluster.slurm.python
    return Inventory(nodes=tuple(replace(node, python=python or node.python) for node in found))


def _numbered(cluster: Cluster, held: Sequence[JobNode]) -> list[Node]:
    wanted = declared(cluster).nodes
    if len(wanted) > len(held):
        names = fold(node.name for node in held)
        raise DiagnosticError.one(
            NODES_CODE,
            f"the topology needs {len(wanted)} nodes, the job has {len(held)}: {names}",
            path="cluster.nodes",
            help="take it down, and bring it up in a job with more nodes",
        )
    return [
        replace(node, name=real.name, address=real.address) for node, real in zip(wanted, held, strict=False)
    ]


def _named(cluster: Cluster, held: Sequence[JobNode]) -> list[Node]:
    address_of = {node.name: node.address for node in held}
    wanted = declared(cluster).nodes
    missing = [node.name for node in wanted if node.name not in address_of]
    if missing:
        raise DiagnosticError.one(
            NODES_CODE,
            f"the job has no {fold(missing)}: its nodes are {fold(address_of)}",
            path="cluster.nodes",
            help="name them as `cluster.slurm.nodelist`, or give `cluster.nodes` as a number",
        )
    return [
        replace(node, address=address_of[node.name]) if node.address == node.name else node for node in wanted
    ]
