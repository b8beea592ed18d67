"""The verb `prove`: what is left of a deployment on this node, after its processes were stopped.

Looks afresh, at the kernel's word rather than at records: living processes, ports, device memory.
"""

from __future__ import annotations

import os

from .family import living_below
from .ports import ports
from .proc import Table

NVIDIA = ("/dev/nvidiactl", "/proc/driver/nvidia")
QUERY = ["nvidia-smi", "--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader,nounits"]
TIMEOUT_S = 20.0


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
    if not _has_program(QUERY[0]):
        has_devices = any(os.path.exists(path) for path in NVIDIA)
        return {"held": [], "unproven": "it has NVIDIA devices, but no `nvidia-smi`" if has_devices else None}
    import subprocess  # costs more than all the rest, where there is no device

    try:
        done = subprocess.run(
            QUERY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"held": [], "unproven": "`nvidia-smi` does not answer: %s" % error}
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        return {"held": [], "unproven": "`nvidia-smi` failed: %s" % " ".join(text.split())[:200]}
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    held = [
        {"pid": int(row[0]), "used_mib": int(row[1]) if row[1].isdigit() else None, "device": row[2]}
        for row in rows
        # A number that lives again is another process: ours were verified gone.
        if len(row) == 3 and row[0].isdigit() and int(row[0]) in pids and int(row[0]) not in table.processes
    ]
    return {"held": held, "unproven": None}


def _has_program(name: str) -> bool:
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in os.get_exec_path())
