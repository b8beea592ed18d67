"""Which machine this is, room on disks and in shared memory, limits that started processes will have."""

from __future__ import annotations

import os
import resource

from .proc import boot_id

CAP_IPC_LOCK = 14  # linux/capability.h: may lock any amount of memory


def machine() -> str:
    """The same text for all who share a kernel and its network, so that ports and devices are the same ones.

    A boot id alone is that of all containers of a machine; names of hosts are given twice by mistake.
    """
    return "%s %d" % (boot_id(), os.stat("/proc/self/ns/net").st_ino)


def folder(path: str) -> dict:
    """`{"path", "free_bytes", "total_bytes", "problem"}` of the file system that `path` is or would be on."""
    found = existing = os.path.expanduser(path)
    while not os.path.exists(existing) and os.path.dirname(existing) != existing:
        existing = os.path.dirname(existing)
    try:
        stat = os.statvfs(existing)
    except OSError as error:
        return {"path": found, "free_bytes": 0, "total_bytes": 0, "problem": error.strerror}
    problem = None
    if not os.access(existing, os.W_OK | os.X_OK):  # also false on a file system mounted read-only
        problem = "can't be written to"
    elif stat.f_files and not stat.f_favail:  # some file systems count none
        problem = "has no room for another file, whatever its size"
    return {
        "path": found,
        "free_bytes": stat.f_bavail * stat.f_frsize,
        "total_bytes": stat.f_blocks * stat.f_frsize,
        "problem": problem,
    }


def limits() -> dict:
    """Of this very call: the shim that `start` leaves behind inherits the same. Null is unlimited."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "memlock_bytes": _finite(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
        "may_lock_all": _has_capability(CAP_IPC_LOCK),
        "open_files": _finite(soft),
        "open_files_hard": _finite(hard),
    }


def _finite(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY else limit


def _has_capability(number: int) -> bool:
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            words = [line.split()[1] for line in file if line.startswith("CapEff:")]
    except OSError:
        return False
    return bool(words) and bool(int(words[0], 16) >> number & 1)
