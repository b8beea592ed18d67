"""What there is on a host at one moment, for tests that want it as it was."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.hosts.host import Host
from tests.testbed.hosts.host_spec import VOLATILE

_OF_SSHD = ("/var/log/", "/run/sshd", "/run/utmp", "/run/motd")  # its own records change with every login
_LISTENING = "0A"  # as /proc/net/tcp has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    processes: tuple[str, ...]  # command lines, without sshd's
    ports: tuple[str, ...]  # where something listens, `tcp 0.0.0.0:22` in the kernel's hexadecimal
    files: tuple[str, ...]  # with their sizes: all that differs from the machine's disk, and all in memory

    def differences(self, now: Snapshot) -> list[str]:
        """Lines such as `process gone: sleep 100`; none when all is as it was."""
        found: list[str] = []
        for kind in ("processes", "ports", "files"):
            before, after = Counter(getattr(self, kind)), Counter(getattr(now, kind))
            found += [f"{kind}: gone: {each}" for each in (before - after).elements()]
            found += [f"{kind}: new: {each}" for each in (after - before).elements()]
        return found


def take(host: Host) -> Snapshot:
    return Snapshot(processes=_processes(host), ports=_ports(host), files=_files(host))


def _processes(host: Host) -> tuple[str, ...]:
    found: list[str] = []
    for folder in host.path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            line = b" ".join(words).decode(errors="replace")
            if line and not line.startswith("sshd:"):  # a zombie has no words
                found.append(line)
    return tuple(sorted(found))


def _ports(host: Host) -> tuple[str, ...]:
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{host.init_pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING:
                found.add(f"{table} {fields[1]}")
    return tuple(sorted(found))


def _files(host: Host) -> tuple[str, ...]:
    found = _walk(host.folder / "up", "/")
    for place in (*VOLATILE, *([host.spec.home] if host.spec.home_bytes is not None else [])):
        found += _walk(host.path(place), place, stay=True)
    return tuple(sorted(each for each in found if not each.startswith(_OF_SSHD)))


def _walk(top: Path, name: str, *, stay: bool = False) -> list[str]:
    """`/path size` of all below `top`, which is called `name`; with `stay` on its file system alone."""
    found: list[str] = []
    device = top.stat().st_dev
    for folder, subfolders, files in os.walk(top):
        if stay:
            subfolders[:] = [each for each in subfolders if os.lstat(f"{folder}/{each}").st_dev == device]
        inside = f"{name}{folder[len(str(top)) :]}".replace("//", "/").rstrip("/")
        # A folder of the machine lies on the host's disk as soon as something in it differs.
        found += [f"{inside}/{each}/" for each in subfolders if not Path(inside, each).is_dir()]
        found += [f"{inside}/{each} {os.lstat(f'{folder}/{each}').st_size}" for each in files]
    return found
