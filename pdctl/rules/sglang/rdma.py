"""RDMA devices by name: of nodes that exist, for every accelerator, and alike on both sides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.engines.sglang.release import Release
from pdctl.engines.sglang.transfer import reads_ib_devices
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.topology.model import IbDevices, Role, Topology
from pdctl.topology.nearest import suggest
from pdctl.topology.source import DocumentPath

_PER_NODE: DocumentPath = ("transfer", "ib_devices", "per_node")


def _nodes_exist(topology: Topology) -> Iterable[Diagnostic]:
    """Where the document only counts its nodes, the executor names them."""
    devices, nodes = topology.transfer.ib_devices, topology.cluster.nodes
    if devices is None or isinstance(nodes, int):
        return
    known = tuple(host.name for host in nodes)
    for name in devices.per_node:
        if name not in known:
            yield at_value(
                topology,
                (*_PER_NODE, name),
                "PD403",
                f"`{name}` is no node of the cluster",
                help=suggest(name, known),
            )


def _every_node_has_some(topology: Topology) -> Iterable[Diagnostic]:
    """sglang passes nothing on for such a node; Mooncake and UCX then take what they find first."""
    devices, nodes = topology.transfer.ib_devices, topology.cluster.nodes
    release = Release(version=topology.engine.version)
    if devices is None or not devices.per_node or isinstance(nodes, int):
        return
    if not reads_ib_devices(topology.transfer, release):
        return  # which is said as PD255
    left_out = [
        host.name
        for host in nodes
        if host.name not in devices.per_node and any(_may_use(role, host.name) for role in topology.roles)
    ]
    if left_out:
        yield at_value(
            topology,
            _PER_NODE,
            "PD334",
            f"no RDMA devices are named for {', '.join(f'`{name}`' for name in left_out)}",
            severity=Severity.WARNING,
            notes=("there, the backend chooses by itself, perhaps a device of another network",),
            help="add the node, or give one list for all nodes",
        )


def _may_use(role: Role, node: str) -> bool:
    return not role.on or node in role.on


def _device_maps_are_whole(topology: Topology) -> Iterable[Diagnostic]:
    """sglang mooncake_transfer_engine.py, get_ib_devices_for_gpu, raises for a device that isn't there."""
    devices = topology.transfer.ib_devices
    if devices is None:
        return
    maps: dict[DocumentPath, Mapping[int, tuple[str, ...]]] = {
        ("transfer", "ib_devices"): devices.by_device,
        **{(*_PER_NODE, name): each.by_device for name, each in devices.per_node.items()},
    }
    for path, by_device in maps.items():
        num_devices = _num_devices(topology, str(path[-1]))
        missing = sorted(set(range(num_devices)) - set(by_device))
        if by_device and missing:
            listed = ", ".join(map(str, missing))
            yield at_value(
                topology,
                path,
                "PD426",
                f"the map has no RDMA device for accelerator {listed} of {num_devices}",
                severity=Severity.WARNING,
                notes=("a rank on an accelerator that isn't in the map ends at start",),
                help="add it, or give one list for all",
            )


def _roles_share_rails(topology: Topology) -> Iterable[Diagnostic]:
    """On a fabric where a NIC reaches only those of its own rail, the rest falls back to TCP in silence."""
    devices = topology.transfer.ib_devices
    if devices is None or not devices.per_node:
        return
    prefill, decode = (_first_by_width(topology, devices, role) for role in topology.roles)
    widths = ((sent, received) for sent in prefill for received in decode if sent != received)
    sent, received = next(widths, (0, 0))
    if sent and received:
        other = decode[received]
        yield at_value(
            topology,
            (*_PER_NODE, other),
            "PD430",
            f"`{prefill[sent]}` sends over {sent} RDMA devices, `{other}` receives over {received}",
            severity=Severity.WARNING,
            notes=("where a device reaches only those of its own rail, the others fall back or fail",),
            help="name the same rails on every node, unless all devices reach each other",
        )


def _first_by_width(topology: Topology, devices: IbDevices, role: Role) -> dict[int, str]:
    """Numbers of RDMA devices that nodes of a role are given, each with the first such node."""
    nodes = topology.cluster.nodes
    hosts = () if isinstance(nodes, int) else nodes
    found: dict[int, str] = {}
    for host in hosts:
        if _may_use(role, host.name):
            found.setdefault(len(_names(devices, host.name)), host.name)
    found.pop(0, None)  # left out: the backend finds them
    return found


def _names(devices: IbDevices, node: str) -> frozenset[str]:
    mine = devices.on(node)
    if mine is None:
        return frozenset()
    return frozenset((*mine.shared, *(name for names in mine.by_device.values() for name in names)))


def _num_devices(topology: Topology, node: str) -> int:
    nodes = topology.cluster.nodes
    host = None if isinstance(nodes, int) else next((each for each in nodes if each.name == node), None)
    stated = None if host is None else host.devices
    return topology.cluster.devices_per_node if stated is None else stated


RULES = (
    Rule(code="PD403", check=_nodes_exist),
    Rule(code="PD426", check=_device_maps_are_whole),
    Rule(code="PD430", check=_roles_share_rails),
    Rule(code="PD334", check=_every_node_has_some),
)
