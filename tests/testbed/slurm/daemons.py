"""The processes of one cluster: daemons start here, and all are found and ended, whoever started them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.testbed.hosts.process_id import END_DEADLINE_S, start_ticks
from tests.testbed.slurm.claim import Claim

_DAEMONS = {"slurmd", "slurmstepd", "slurmctld", "slurmscriptd", "munged"}


def environment(base: Path) -> dict[str, str]:
    """Variables that lead all of Slurm's commands to the cluster at `base`, and nothing of another job."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
    return {**kept, "SLURM_CONF": str(base / "etc/slurm.conf")}


def start_munged(claim: Claim, base: Path) -> None:
    files = {
        "key-file": base / "munge/key",
        "socket": claim.folder / "munge.sock",
        "pid-file": base / "run/munged.pid",
        "log-file": base / "munge/munged.log",
        "seed-file": base / "munge/seed",
    }
    words = [f"--{name}={path}" for name, path in files.items()]
    _start(base, "munged", "--force", "--num-threads=2", *words)


def start_controller(base: Path) -> None:
    _start(base, "slurmctld", "-f", str(base / "etc/slurm.conf"))


def end_controller(base: Path) -> None:
    """It saves its state, and ends."""
    pid = daemon(base, "slurmctld")
    if pid is not None:
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGTERM)
        _await_end([pid])


def start_slurmd(base: Path, node: str) -> None:
    (base / "spool" / node).mkdir(exist_ok=True)
    _start(base, "slurmd", "-f", str(base / "etc/slurm.conf"), "-N", node)


def daemon(base: Path, name: str) -> int | None:
    """Pid of `slurmctld`, `munged` or `slurmd-NODE`; None when it doesn't run."""
    try:
        text = (base / f"run/{name}.pid").read_text().strip()
        is_ours = bool(text) and f"{base}/" in Path(f"/proc/{text}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it ended, maybe at this moment
        return None
    return int(text) if is_ours and start_ticks(int(text)) is not None else None


def processes(base: Path) -> Iterator[int]:
    """Daemons, their children, and whatever jobs have started, also what left its session or job."""
    for pid in _pids():
        try:
            if start_ticks(pid) is not None and _belongs(Path(f"/proc/{pid}"), base):
                yield pid
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue


def tasks(base: Path, node: str) -> Iterator[int]:
    """What runs on one node: tasks and batch scripts, and the slurmstepds over them."""
    mark = f"SLURMD_NODENAME={node}".encode()
    log = str(base / f"log/slurmd-{node}.log")
    for pid in processes(base):
        folder = Path(f"/proc/{pid}")
        try:
            if mark in _environ(folder) or (_comm(folder) == "slurmstepd" and log in _open_files(folder)):
                yield pid
        except (FileNotFoundError, ProcessLookupError):
            continue


def kill(pids: Iterator[int]) -> None:
    """KILL, and wait until they are gone."""
    found = [pid for pid in pids if pid != os.getpid()]
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    _await_end(found)


def kill_all(base: Path) -> None:
    """Until none is left: one that is killed may just have started another."""
    while found := list(processes(base)):
        kill(iter(found))


def _await_end(pids: list[int]) -> None:
    deadline = time.monotonic() + END_DEADLINE_S
    while any(start_ticks(pid) is not None for pid in pids):
        assert time.monotonic() < deadline, f"processes of a Slurm cluster don't end: {pids}"
        time.sleep(0.01)


def _start(base: Path, *argv: str) -> None:
    """Each becomes a daemon by itself, and ends here when it listens or could not."""
    log = base / "log" / f"start-{argv[0]}.log"
    with log.open("ab") as output:
        done = subprocess.run(
            argv, env=environment(base), stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        )
    assert done.returncode == 0, f"{argv[0]} did not start: {log.read_text()}"


def _belongs(folder: Path, base: Path) -> bool:
    """A daemon by its files or words; what a job started, by its environment."""
    environ = _environ(folder)
    if any(each.startswith(b"SLURM_JOB_ID=") for each in environ):
        return f"SLURM_CONF={base}/etc/slurm.conf".encode() in environ
    if _comm(folder) not in _DAEMONS:
        return False
    inside = f"{base}/"
    return inside in (folder / "cmdline").read_text() or any(
        each.startswith(inside) for each in _open_files(folder)
    )


def _pids() -> Iterator[int]:
    return (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())


def _comm(folder: Path) -> str:
    return (folder / "comm").read_text().strip()


def _environ(folder: Path) -> list[bytes]:
    return (folder / "environ").read_bytes().split(b"\0")


def _open_files(folder: Path) -> list[str]:
    found = []
    for each in (folder / "fd").iterdir():
        try:
            found.append(str(each.readlink()))
        except FileNotFoundError:
            continue
    return found
