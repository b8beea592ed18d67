"""A process is its pid with its start time: pids are used again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

END_DEADLINE_S = 30.0


def start_ticks(pid: int) -> str | None:
    """None when it is gone. A zombie is: whoever has to reap it may take its time."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def record(file: Path, pid: int) -> None:
    file.write_text(f"{pid} {start_ticks(pid)}")


def recorded(file: Path) -> int | None:
    """The pid in a record, None when that process is gone."""
    pid, ticks = file.read_text().split() if file.is_file() else ("0", "")
    return int(pid) if start_ticks(int(pid)) == ticks else None


def end(file: Path) -> None:
    """Kill a recorded process, and wait until it is gone."""
    pid = recorded(file)
    if pid is None:
        return
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + END_DEADLINE_S
    while start_ticks(pid) is not None:
        assert time.monotonic() < deadline, f"process {pid} of {file} does not end"
        time.sleep(0.01)
