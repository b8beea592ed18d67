"""Which accelerators a process of SGLang sees, and which RDMA devices it sends KV cache through.

A process sees its own accelerators alone, by the variable of their vendor, and `--base-gpu-id` stays out of
the command line. The other way, all of them visible and a base for each instance, needs neighbouring devices,
and SGLang adds steps and pipeline stages to the base (`entrypoints/engine.py`), so that a wrong width
computes on a neighbour's device. Both together shift twice. NVLink inside a node stays possible: a process
opens CUDA memory of a neighbour (cuIpcOpenMemHandle) whose device it doesn't see, tried on two H200.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pdctl.plan.layout import Slot
from pdctl.topology.model import IbDevices, Role, Topology


def is_ascend(topology: Topology, role: Role) -> bool:
    """Whether the role computes on NPUs: it says so, or only they have its transfer backend."""
    stated = role.args.get("device", topology.defaults.args.get("device"))
    return stated == "npu" or topology.transfer.backend == "ascend"


def visible_devices(topology: Topology, role: Role, slot: Slot) -> dict[str, str]:
    """Empty on CPU nodes. ROCm reads the CUDA name as well."""
    if not slot.device_indices:
        return {}
    name = "ASCEND_RT_VISIBLE_DEVICES" if is_ascend(topology, role) else "CUDA_VISIBLE_DEVICES"
    return {name: ",".join(str(index) for index in slot.device_indices)}


def ib_device_flag(devices: IbDevices, node: str, device_indices: Sequence[int]) -> str | None:
    """The value of `--disaggregation-ib-device` on one node; None where the document has none for it.

    A map is keyed by device as the process sees them (`mooncake_transfer_engine.py`,
    `get_ib_devices_for_gpu`), so from 0 up whatever their indices on the node.
    """
    mine = devices.on(node)
    if mine is None:
        return None
    if mine.shared:
        return ",".join(mine.shared)
    seen = {
        str(position): ",".join(mine.by_device[index])
        for position, index in enumerate(device_indices)
        if index in mine.by_device
    }
    return json.dumps(seen, separators=(",", ":")) if seen else None
