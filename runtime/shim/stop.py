"""The verb `stop`: end processes and all that came from them, and answer only when they are verified gone.

TERM to the worker's group, after the grace KILL to everything that belongs to it; then the shim has a while
to record the end and leave. Signals pass through pidfds after the identity was checked, so a reused pid is
never hit.
"""

from __future__ import annotations

import os
import time

from .family import Family
from .proc import Process, Table, boot_id, send_signal
from .record import EXIT, SPEC, read_json, reserve_exit, write_exit
from .signals import signal
from .supervise import DEFAULT_GRACE_S, KILL_TRIES_S, LEFTOVER_GRACE_S
from .worker import STOP_ANNOUNCED

SHIM_GRACE_S = LEFTOVER_GRACE_S + 3.0  # from the end of its last process to its own
SHORT_TICK_S = 0.02
LONG_TICK_S = 0.1
MAX_PIDS = 4096  # told of one process, to look for device memory that the driver still holds for them


def stop(root: str, deployment: str, process_ids: list[str], grace_s: object) -> list[dict]:
    """Stop several processes at once; `grace_s` maps process ids to seconds, else the spec of each tells."""
    graces = grace_s if isinstance(grace_s, dict) else {}
    boot, known = boot_id(), {}
    table = Table(known)
    stops = [
        Stop(process_id, os.path.join(root, deployment, process_id), graces.get(process_id))
        for process_id in process_ids
    ]
    started = time.monotonic()
    pending = stops
    while pending:
        pending = [each for each in pending if not each.advance(table, boot, time.monotonic())]
        if pending:
            time.sleep(SHORT_TICK_S if time.monotonic() < started + 1.0 else LONG_TICK_S)
            table = Table(known)
    return [each.answer() for each in stops]


class Stop:
    """The end of one process, a step per look at /proc."""

    def __init__(self, process_id: str, process_dir: str, grace_s: object) -> None:
        self._process_id = process_id
        self._process_dir = process_dir
        self._grace_s = float(grace_s) if isinstance(grace_s, (int, float)) else None
        self._started = time.monotonic()
        self._elapsed_s = 0.0
        self._seen: dict[
            tuple[int, int], Process
        ] = {}  # once of the family, always: it may leave all its marks
        self._shim: Process | None = None
        self._termed: set[tuple[int, int]] = set()
        self._kill_at = 0.0
        self._gone_at: float | None = None
        self._was_alive = False
        self._killed = False
        self._survivors: list[Process] = []

    def advance(self, table: Table, boot: str, now: float) -> bool:
        """Do what is due; True when there is nothing more to do."""
        family = Family(self._process_dir, table, boot)
        alive = self._living(family, table)
        if not self._was_alive and (alive or self._shim):
            self._begin(family, now)
        if alive:
            self._gone_at = None
            self._press(family, alive, now)
            if now < self._kill_at + KILL_TRIES_S:
                return False
            self._survivors = alive
        elif self._shim and not self._end_shim(now):
            return False
        self._elapsed_s = now - self._started
        self._record(family)
        return True

    def answer(self) -> dict:
        return {
            "process_id": self._process_id,
            "was_alive": self._was_alive,
            "killed": self._killed,
            "elapsed_s": round(self._elapsed_s, 3),
            "pids": sorted(pid for pid, _ in self._seen)[:MAX_PIDS],
            "survivors": [
                {"pid": process.pid, "command": process.command, "state": process.state}
                for process in self._survivors
            ],
        }

    def _living(self, family: Family, table: Table) -> list[Process]:
        for process in family.members:
            self._seen.setdefault(process.identity, process)
        shim = family.shim or self._shim
        self._shim = table.find(*shim.identity) if shim else None
        living = [table.find(*identity) for identity in self._seen]
        return [process for process in living if process]

    def _begin(self, family: Family, now: float) -> None:
        self._was_alive = True
        spec = read_json(os.path.join(family.run_dir, SPEC)) if family.run_dir else {}
        grace_s = self._grace_s if self._grace_s is not None else spec.get("grace_s")
        self._kill_at = now + (grace_s if isinstance(grace_s, (int, float)) else DEFAULT_GRACE_S)
        if self._shim:
            send_signal(self._shim, STOP_ANNOUNCED)

    def _press(self, family: Family, alive: list[Process], now: float) -> None:
        """TERM once to each that is due, KILL each time to all that are over time."""
        if now >= self._kill_at:
            self._killed = True
            for process in alive:
                send_signal(process, signal.SIGKILL)
            return
        due = alive
        if family.worker:
            due = [process for process in alive if process.group == family.worker.pid]
        elif self._shim is None or self._termed:
            # The worker has ended; what outlives it gets no more than the shim would give it.
            self._kill_at = min(self._kill_at, now + LEFTOVER_GRACE_S)
        for process in due:
            if process.identity not in self._termed:
                self._termed.add(process.identity)
                send_signal(process, signal.SIGTERM)

    def _end_shim(self, now: float) -> bool:
        """Wait for the shim to leave by itself, since it writes the record; then end it."""
        if self._gone_at is None:
            self._gone_at = now
        if self._shim and now > self._gone_at + SHIM_GRACE_S:
            send_signal(self._shim, signal.SIGKILL)
        return now > self._gone_at + SHIM_GRACE_S + KILL_TRIES_S

    def _record(self, family: Family) -> None:
        """Without a shim, nobody else would say that this end was wanted."""
        if not self._was_alive or self._survivors or not family.run_dir:
            return
        path = os.path.join(family.run_dir, EXIT)
        if read_json(path):
            return
        reason = "stopped without its shim, so its exit code is not known"
        try:
            descriptor = reserve_exit(path)
            write_exit(
                descriptor,
                {"code": None, "signal": None, "stopped": True, "ended_at": time.time(), "reason": reason},
            )
            os.close(descriptor)
        except OSError:  # the directory went away, or the disk is full: the state stays `lost`
            pass
