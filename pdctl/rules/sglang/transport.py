"""Threads and the fabric of the KV transfer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.rules.sglang.memory_pool import POOL, pool_of
from pdctl.rules.sglang.processes import process_variables
from pdctl.rules.sglang.reading import backend_of, number
from pdctl.topology.model import IbDevices, Role, Topology
from pdctl.topology.source import DocumentPath

# sglang srt/disaggregation/mooncake/conn.py: min(max(4, cpus // 16), 12) threads for 4 queues.
_FEWEST_THREADS, _MOST_THREADS = 4, 12
_THREADS, _QUEUES = "SGLANG_DISAGGREGATION_THREAD_POOL_SIZE", "SGLANG_DISAGGREGATION_QUEUE_SIZE"


def _queues_have_threads(topology: Topology) -> Iterable[Diagnostic]:
    if backend_of(topology) != "mooncake":
        return
    for variables in process_variables(topology, topology.prefill, _QUEUES, _THREADS):
        queues, num_threads = variables.get(_QUEUES), number(variables.get(_THREADS))
        num_queues = number(queues)
        if queues is None or num_queues is None:
            continue
        surely_few = num_queues > (_MOST_THREADS if num_threads is None else num_threads)
        perhaps_few = num_threads is None and num_queues > _FEWEST_THREADS
        if surely_few or perhaps_few:
            by_cpus = f"{_FEWEST_THREADS} to {_MOST_THREADS} threads, by the number of CPUs"
            yield at_value(
                topology,
                queues.path,
                "PD420",
                f"{num_queues} transfer queues need as many threads, prefill has "
                + (by_cpus if num_threads is None else str(num_threads)),
                severity=Severity.ERROR if surely_few else Severity.WARNING,
                notes=("with fewer threads than queues, prefill ends with an assertion",),
                help=f"set `transfer.threads: {num_queues}` or more",
            )


def _fabric_reaches(topology: Topology) -> Iterable[Diagnostic]:
    """Nodes that NVLink joins can't be told from a document, but one node and disjoint nodes can."""
    nodes = topology.cluster.nodes
    num_nodes = nodes if isinstance(nodes, int) else len(nodes)
    nvlink = topology.transfer.nvlink
    if nvlink == "mnnvl" and num_nodes == 1:
        yield at_value(
            topology,
            ("transfer", "nvlink"),
            "PD421",
            "NVLink between nodes is asked for, and the cluster is one node",
            severity=Severity.WARNING,
            notes=("without such a fabric Mooncake can't allocate its memory, and engines end at start",),
            help="set `nvlink: intra_node`",
        )
    prefill, decode = set(topology.prefill.on), set(topology.decode.on)
    if nvlink == "intra_node" and prefill and decode and not prefill & decode:
        yield at_value(
            topology,
            ("transfer", "nvlink"),
            "PD421",
            "NVLink inside a node is asked for, and no node has both prefill and decode",
            help="set `nvlink: off`, or `mnnvl` where the nodes share an NVLink fabric",
        )
    if num_nodes == 1 and nvlink == "off":
        yield from _variable_for_many_nodes(topology)


def _variable_for_many_nodes(topology: Topology) -> Iterable[Diagnostic]:
    if backend_of(topology) != "mooncake":
        return
    found = {
        stated.path: f"{name}: {stated.value}"
        for role in topology.roles
        for variables in process_variables(topology, role, "MC_FORCE_MNNVL", POOL)
        for name, stated in variables.items()
        if name != POOL or pool_of(stated) == "NVLINK"
    }
    for path, shown in found.items():
        yield at_value(
            topology,
            path,
            "PD421",
            f"`{shown}` asks for NVLink between nodes, and the cluster is one node",
            severity=Severity.WARNING,
            notes=("engines end at start where the fabric isn't there",),
            help="remove it, and set `transfer.nvlink: intra_node` for NVLink inside the node",
        )


def _device_maps_are_whole(topology: Topology) -> Iterable[Diagnostic]:
    """sglang mooncake_transfer_engine.py, get_ib_devices_for_gpu, raises for a device that isn't there."""
    devices = topology.transfer.ib_devices
    if devices is None:
        return
    maps: dict[DocumentPath, Mapping[int, tuple[str, ...]]] = {
        ("transfer", "ib_devices"): devices.by_device,
        **{
            ("transfer", "ib_devices", "per_node", name): each.by_device
            for name, each in devices.per_node.items()
        },
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
            ("transfer", "ib_devices", "per_node", other),
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
        if not role.on or host.name in role.on:
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
    Rule(code="PD430", check=_roles_share_rails),
    Rule(code="PD426", check=_device_maps_are_whole),
    Rule(code="PD420", check=_queues_have_threads),
    Rule(code="PD421", check=_fabric_reaches),
)
