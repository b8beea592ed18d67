"""A process is its pid with its start time: pids are used again."""

from __future__ import annotations

from pathlib import Path


def start_ticks(pid: int) -> str | None:
    """None when it is gone. A zombie is: whoever has to reap it may take its time."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]
