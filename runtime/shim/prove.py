"""The verb `prove`: what is left of a deployment on this node, after its processes were stopped.

Looks afresh, at the kernel's word rather than at records: living processes, ports, device memory.
"""

from __future__ import annotations

import os

from .devices import DevicesUnknown, holders
from .family import living_below
from .ports import ports
from .proc import Table


def prove(root: str, deployment: str, request: dict) -> dict:
    """`{"processes": ids that live, "ports": answers to `queries`, "devices": …}`.

    `pids` are those that the deployment had: the driver may hold their memory though they are gone.
    """
    table = Table()
    pids = request.get("pids")
    return {
        "processes": sorted(living_below(os.path.join(root, deployment), table)),
        "ports": ports(request.get("queries") or []),
        "devices": _devices(set(pids) if isinstance(pids, list) else set(), table),
    }


def _devices(pids: set, table: Table) -> dict:
    """`{"held": [{"pid", "used_mib", "device"}], "unproven": why not or null}`."""
    try:
        found = holders()
    except DevicesUnknown as error:
        return {"held": [], "unproven": str(error)}
    # A number that lives again is another process: ours were verified gone.
    held = [each for each in found if each["pid"] in pids and each["pid"] not in table.processes]
    return {"held": held, "unproven": None}
