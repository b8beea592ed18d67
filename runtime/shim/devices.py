"""Who holds how much memory of NVIDIA devices, in the driver's words."""

from __future__ import annotations

import os

NVIDIA = ("/dev/nvidiactl", "/proc/driver/nvidia")
QUERY = ["nvidia-smi", "--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader,nounits"]
TIMEOUT_S = 20.0


class DevicesUnknown(Exception):
    """The driver can't be asked; the text says why."""


def holders() -> list[dict]:
    """`{"pid", "used_mib", "device"}` for each process on each device; none where there are no devices.

    Raises DevicesUnknown. `used_mib` is None where the driver doesn't tell, as inside some containers.
    """
    if not _has_program(QUERY[0]):
        if any(os.path.exists(path) for path in NVIDIA):
            raise DevicesUnknown("it has NVIDIA devices, but no `nvidia-smi`")
        return []
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
        raise DevicesUnknown("`nvidia-smi` does not answer: %s" % error) from error
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        raise DevicesUnknown("`nvidia-smi` failed: %s" % " ".join(text.split())[:200])
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [
        {"pid": int(row[0]), "used_mib": int(row[1]) if row[1].isdigit() else None, "device": row[2]}
        for row in rows
        if len(row) == 3 and row[0].isdigit()
    ]


def _has_program(name: str) -> bool:
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in os.get_exec_path())
