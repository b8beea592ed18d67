"""The verb `status`: the truth about every process of a deployment, from its records and from /proc.

States: starting, running, exited, orphaned (its shim or its directory is gone, it lives on), lost (it ended
without a record, as after a reboot). A process that was never started is absent from the answer.
"""

from __future__ import annotations

import os
import time

from .devices import DevicesUnknown, holders
from .family import Family, living_below
from .proc import NODE_VARIABLE, PROCESS_VARIABLE, Process, Table, boot_id
from .record import EXIT, SPEC, is_elsewhere, process_ids, read_json

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SETTLE_TRIES = 20
SETTLE_S = 0.01


def status(root: str, deployment: str, node: object, *, asks_devices: bool = False) -> list[dict]:
    """One entry per process. With a node's name, other nodes' (on a shared file system) are left out.

    `device_bytes` is only asked of the driver on demand: that takes up to a second.
    """
    deployment_dir = os.path.join(root, deployment)
    table, boot = Table(), boot_id()
    device_bytes = _device_bytes() if asks_devices else {}
    names = {
        name
        for name in process_ids(deployment_dir)
        if not is_elsewhere(os.path.join(deployment_dir, name), node)
    }
    names |= living_below(deployment_dir, table)
    entries = [_settled(deployment_dir, name, table, boot, device_bytes) for name in sorted(names)]
    return [entry for entry in entries if entry and (node is None or entry["node"] in (None, node))]


def _device_bytes() -> dict:
    """By pid, over all devices; empty where the driver can't tell."""
    found: dict = {}
    try:
        for each in holders():
            found[each["pid"]] = found.get(each["pid"], 0) + (each["used_mib"] or 0) * 2**20
    except DevicesUnknown:
        pass
    return found


def _settled(
    deployment_dir: str, process_id: str, table: Table, boot: str, device_bytes: dict
) -> dict | None:
    """Judge once more while the shim is between the end of its worker and the record of it."""
    process_dir = os.path.join(deployment_dir, process_id)
    family = Family(process_dir, table, boot)
    entry = describe(process_id, family, boot)
    mine = [device_bytes[each.pid] for each in family.members if each.pid in device_bytes]
    if entry and mine:
        entry["device_bytes"] = sum(mine)
    for _ in range(SETTLE_TRIES):
        if entry is None or entry["state"] != "ending":
            return entry
        time.sleep(SETTLE_S)
        entry = describe(process_id, Family(process_dir, Table(), boot), boot)
    return entry and dict(entry, state="lost", reason="it has ended and its shim does not answer")


def describe(process_id: str, family: Family, boot: str) -> dict | None:
    """One entry of the answer; None when the process has no run and nothing of it lives."""
    if family.run_dir is None and not family.members:
        return None
    spec = read_json(os.path.join(family.run_dir, SPEC)) if family.run_dir else {}
    ended = read_json(os.path.join(family.run_dir, EXIT)) if family.run_dir else {}
    state, reason = judge(family, ended, boot)
    marker = family.homeless[0] if family.homeless else {}
    return {
        "process_id": process_id,
        "run_id": _run_id(family, marker),
        "node": marker.get(NODE_VARIABLE) or spec.get("node") or family.status.get("node"),
        "state": state,
        "reason": reason,
        "digest": None if marker else spec.get("digest") or family.status.get("digest"),
        "pid": family.worker.pid if family.worker else None if marker else family.status.get("pid"),
        "started_at": None if marker else family.status.get("started_at"),
        "age_s": _age_s(family.worker) if family.worker else None,
        "ended_at": ended.get("ended_at"),
        "exit_code": ended.get("code"),
        "signal": ended.get("signal"),
        "is_stopped": bool(ended.get("stopped")),
        "rss_bytes": family.rss_bytes,
        "num_alive": len(family.members),
        "grace_s": spec.get("grace_s"),
        "argv": spec.get("argv", []),
        "env": spec.get("env", {}),
    }


def judge(family: Family, ended: dict, boot: str) -> tuple[str, str | None]:
    """The state and, when it needs words, why."""
    if family.homeless:
        return "orphaned", "its run directory was removed"
    if ended:
        return "exited", ended.get("reason")
    if family.status and family.status.get("boot_id") != boot:
        return "lost", "the host rebooted"
    if family.worker:
        damaged = None if family.status else "its status.json is damaged"
        return ("running", damaged) if family.shim else ("orphaned", "its shim is gone")
    if family.shim:
        return ("ending", None) if family.status else ("starting", None)
    return "lost", "it ended without a record of how" if family.status else "its shim ended before it started"


def _age_s(worker: Process) -> float:
    """Seconds since it was started, by the one clock that nobody sets."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - worker.start_ticks / TICKS_PER_S)


def _run_id(family: Family, marker: dict) -> str | None:
    if marker:
        return marker.get(PROCESS_VARIABLE, "").rpartition("/")[2] or None
    return os.path.basename(family.run_dir) if family.run_dir else None
