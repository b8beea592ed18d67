"""What of `transfer` the reference engine, or the backend that it is given, wouldn't read or couldn't do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pdctl.diagnostics import Diagnostic
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.topology.model import IbDevices, Topology, Transfer
from pdctl.topology.source import DocumentPath, dotted

BACKENDS = ("tcp", "mooncake", "nixl", "ascend")

# As the engine counts them (runtime/transfer/one_sided/lanes.py), and SGLang.
_DEFAULT_QUEUES, _MOST_THREADS = 4, 12


def _no_settings_of_other_backends(topology: Topology) -> Iterable[Diagnostic]:
    """Fields of the schema that only other engines, or other backends of this one, read."""
    transfer, default = topology.transfer, Transfer()
    has_queues, is_nixl = transfer.backend != "tcp", transfer.backend == "nixl"
    is_ascend = transfer.backend == "ascend"
    read_of_ascend = replace(default.ascend, protocol=transfer.ascend.protocol if is_ascend else None)
    absent: Mapping[str, bool] = {
        "heartbeat_max_failures": transfer.heartbeat_max_failures is None,
        "ib_devices": transfer.ib_devices is None or transfer.backend == "mooncake",
        "nvlink": transfer.nvlink == default.nvlink,
        "threads": transfer.threads is None or has_queues,
        "queues": transfer.queues is None or has_queues,
        "nixl": transfer.nixl == default.nixl or (is_nixl and not transfer.nixl.params),
        "ascend": transfer.ascend == read_of_ascend,
    }
    paths: list[DocumentPath] = [("transfer", name) for name, is_absent in absent.items() if not is_absent]
    paths += [(role.name, "kv_events_port") for role in topology.roles if role.kv_events_port is not None]
    for path in paths:
        where = f" with the backend `{transfer.backend}`" if path[0] == "transfer" else ""
        yield Diagnostic(
            code="PD250",
            message=f"the reference engine has no setting `{dotted(path)}`{where}",
            span=topology.source.key(*path),
            path=dotted(path),
            help="remove it, or choose `engine.kind: sglang`",
        )


def _backend_is_known(topology: Topology) -> Iterable[Diagnostic]:
    backend = topology.transfer.backend
    if backend not in BACKENDS:
        yield Diagnostic(
            code="PD305",
            message=f"the reference engine has no transfer backend `{backend}`",
            span=topology.source.value("transfer", "backend"),
            path="transfer.backend",
            notes=(f"it has {', '.join(f'`{each}`' for each in BACKENDS)}",),
            help="set `transfer.backend: tcp`",
        )


def _queues_have_threads(topology: Topology) -> Iterable[Diagnostic]:
    transfer = topology.transfer
    num_queues = _DEFAULT_QUEUES if transfer.queues is None else transfer.queues
    num_threads = _MOST_THREADS if transfer.threads is None else transfer.threads
    if transfer.backend == "tcp" or num_queues <= num_threads:
        return
    counted = "at most " if transfer.threads is None else ""
    yield at_value(
        topology,
        ("transfer", "threads" if transfer.queues is None else "queues"),
        "PD420",
        f"{num_queues} transfer queues need as many threads, a rank has {counted}{num_threads}",
        notes=("with fewer threads than queues the engine ends at start",),
        help=f"set `transfer.threads: {num_queues}` or more, or fewer `transfer.queues`",
    )


def _devices_are_for_all_ranks(topology: Topology) -> Iterable[Diagnostic]:
    """The ranks of this engine share the RDMA devices of their node."""
    devices = topology.transfer.ib_devices
    if devices is None or topology.transfer.backend != "mooncake":
        return
    places: dict[DocumentPath, IbDevices] = {
        ("transfer", "ib_devices"): devices,
        **{("transfer", "ib_devices", "per_node", name): one for name, one in devices.per_node.items()},
    }
    for path, one in places.items():
        if one.by_device:
            yield at_value(
                topology,
                path,
                "PD361",
                "the reference engine gives all ranks of a node the same RDMA devices, found a map",
                help="list the devices of the node, `[mlx5_0, mlx5_1]`",
            )


RULES = (
    Rule(code="PD250", check=_no_settings_of_other_backends),
    Rule(code="PD305", check=_backend_is_known),
    Rule(code="PD420", check=_queues_have_threads),
    Rule(code="PD361", check=_devices_are_for_all_ranks),
)
