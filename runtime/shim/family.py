"""Who belongs to a process: its shim, the worker that the shim started, and everything that came from it."""

from __future__ import annotations

import os

from .proc import RUN_DIR_VARIABLE, Process, Table
from .record import LOCK, STATUS, read_json, run_ids


class Family:
    """The living part of one process. `run_dir` is the latest run's; None when no run directory is left."""

    __slots__ = ("homeless", "members", "run_dir", "shim", "status", "worker")

    def __init__(self, process_dir: str, table: Table, boot: str) -> None:
        runs = run_ids(process_dir)
        self.run_dir: str | None = os.path.join(process_dir, runs[-1]) if runs else None
        self.status: dict = read_json(os.path.join(self.run_dir, STATUS)) if self.run_dir else {}
        carriers = table.carriers(process_dir)
        self.shim = _find_shim(process_dir, self.status, table, boot)
        self.worker = _find_worker(self.status, [process for process, _ in carriers], table, boot)
        found = {process.pid: process for process, _ in carriers}
        session = _session(self.status, self.worker, table, boot)
        if any(process.pid in found or process is self.worker for process in session):
            found.update((process.pid, process) for process in session)
        for root in (self.worker, self.shim):
            for process in table.tree(root.pid) if root else ():
                found[process.pid] = process
        if self.shim:
            found.pop(self.shim.pid, None)
        self.members: list[Process] = list(found.values())  # all but the shim
        # Markers of members whose run directory was removed while they ran.
        self.homeless = [marker for _, marker in carriers if not os.path.isdir(marker[RUN_DIR_VARIABLE])]

    @property
    def rss_bytes(self) -> int:
        return sum(process.rss_bytes for process in self.members)


def living_below(directory: str, table: Table) -> set[str]:
    """Names right below `directory` in the markers of living processes, whether or not they exist."""
    paths = (marker[RUN_DIR_VARIABLE] for _, marker in table.carriers(directory))
    return {os.path.relpath(path, directory).split("/")[0] for path in paths}


def _find_shim(process_dir: str, status: dict, table: Table, boot: str) -> Process | None:
    """From status.json, or from the lock file when that is missing or cut off."""
    if status.get("boot_id") == boot:
        return table.find(status.get("shim_pid"), status.get("shim_start_ticks"))
    lock = read_json(os.path.join(process_dir, LOCK))
    return table.find(lock.get("pid"), lock.get("start_ticks")) if lock.get("boot_id") == boot else None


def _find_worker(status: dict, carriers: list[Process], table: Table, boot: str) -> Process | None:
    """From status.json; without it, the oldest session leader that carries the marker."""
    if status.get("boot_id") == boot:
        return table.find(status.get("pid"), status.get("start_ticks"))
    leaders = [process for process in carriers if process.session == process.pid]
    return min(leaders, key=lambda process: process.start_ticks, default=None) if not status else None


def _session(status: dict, worker: Process | None, table: Table, boot: str) -> list[Process]:
    """Who lives in the worker's session, or in a later one of the same number; one member can tell which.

    The number is the pid of the session's first process. The kernel keeps a pid from new processes as long as
    any process has it as its pid, group or session (`free_pid` in kernel/pid.c), so all who live in a session
    of one number live in one session: if one of them proves to be ours, all are. If none does, the session
    may have ended, and its number be that of a stranger's.
    """
    if worker:
        return table.session(worker.pid)
    return table.session(status.get("pid")) if status.get("boot_id") == boot else []
