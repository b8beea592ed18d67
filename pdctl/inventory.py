"""The nodes that exist, as far as planning needs to know them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.topology.model import AUTO, Cluster, Host, HostSsh


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine. `address` is how its peers reach it; zero devices means that engines run on its CPUs."""

    name: str
    address: str
    num_devices: int = 0
    python: str = "python3"  # runs what the topology names no interpreter for
    interface: str | None = None  # network interface for NCCL and Gloo; None: they choose
    env: Mapping[str, str] = field(default_factory=dict[str, str])  # of every engine process there
    engine_python: str | None = None  # interpreter of engines there, over the topology's
    model_path: str | None = None  # where the model lies there, over the topology's
    ssh: HostSsh = field(default_factory=HostSsh)  # how the operator logs in, with executor `ssh`

    @property
    def ip(self) -> str | None:
        """`address`, where it is one in numbers and no name."""
        try:
            return str(ipaddress.ip_address(self.address)) and self.address
        except ValueError:
            return None

    @property
    def listen_address(self) -> str:
        """All addresses for a name: to the node itself its name may mean the loopback address."""
        return self.ip or "0.0.0.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    nodes: tuple[Node, ...]

    def node(self, name: str) -> Node | None:
        return next((node for node in self.nodes if node.name == name), None)


class IncompleteInventoryError(DiagnosticError):
    """Some nodes could not be asked; `inventory` has them by their names, and what the others told."""

    def __init__(self, diagnostics: Iterable[Diagnostic], inventory: Inventory) -> None:
        super().__init__(diagnostics)
        self.inventory = inventory


def declared(cluster: Cluster) -> Inventory:
    """The nodes as the document has them, before any is reached; a bare count gets names by number."""
    if isinstance(cluster.nodes, int):
        width = max(2, len(str(cluster.nodes - 1)))
        nodes = tuple(
            Node(
                name=f"node-{number:0{width}}",
                address=f"node-{number:0{width}}",
                num_devices=num_devices,
            )
            for number, num_devices in enumerate(_devices_by_number(cluster, cluster.nodes))
        )
        return Inventory(nodes=nodes)
    return Inventory(nodes=tuple(_declared_node(host, cluster) for host in cluster.nodes))


def _devices_by_number(cluster: Cluster, num_nodes: int) -> tuple[int, ...]:
    """Nodes of a job with several shapes are counted group by group."""
    groups = () if cluster.slurm is None else cluster.slurm.het_groups
    own = [
        cluster.devices_per_node if group.devices_per_node is None else group.devices_per_node
        for group in groups
        for _ in range(group.nodes)
    ]
    return tuple(own) if len(own) == num_nodes else (cluster.devices_per_node,) * num_nodes


def _declared_node(host: Host, cluster: Cluster) -> Node:
    """`auto` stands for what only the node knows; its name takes the place until it is asked."""
    address = host.name if host.address in (None, AUTO) else host.address
    login = host.name if host.address == AUTO and host.ssh.host is None else host.ssh.host
    return Node(
        name=host.name,
        address=address,
        num_devices=cluster.devices_per_node if host.devices is None else host.devices,
        interface=None if host.interface == AUTO else host.interface,
        env=host.env,
        engine_python=host.python,
        model_path=host.model_path,
        ssh=replace(host.ssh, host=login),
    )
