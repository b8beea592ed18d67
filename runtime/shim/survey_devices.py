"""Accelerators as nvidia-smi tells them: which, how full, and whose processes are on them."""

from __future__ import annotations

import subprocess

from .ports import process_of
from .proc import Table

SMI = "nvidia-smi"
SMI_TIMEOUT_S = 20.0  # without its persistence daemon the driver wakes all devices first
FORMAT = "--format=csv,noheader,nounits"
_GPUS = "--query-gpu=index,uuid,driver_version,memory.total,memory.used,name"
_PROCESSES = "--query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name"


def devices() -> dict:
    """`{"problem", "gpus", "processes"}`; memory in bytes, null where the driver does not tell."""
    try:
        calls = [_begin(_GPUS), _begin(_PROCESSES)]
    except OSError as error:
        return {"problem": "no `%s`: %s" % (SMI, error.strerror), "gpus": [], "processes": []}
    (gpus, gpu_problem), (processes, process_problem) = _end(calls[0], 6), _end(calls[1], 4)
    return {
        "problem": gpu_problem or process_problem,
        "gpus": [_gpu(row) for row in gpus if len(row) == 6],
        "processes": _with_owners([row for row in processes if len(row) == 4]),
    }


def _begin(query: str) -> subprocess.Popen:
    return subprocess.Popen(
        [SMI, query, FORMAT], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def _end(call: subprocess.Popen, num_cells: int) -> tuple[list[list[str]], str | None]:
    """Rows of cells; the last cell, a name, may hold commas itself."""
    try:
        text = call.communicate(timeout=SMI_TIMEOUT_S)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        call.kill()
        call.communicate()
        return [], "`%s` does not answer within %g s" % (SMI, SMI_TIMEOUT_S)
    lines = text.strip().splitlines()
    if call.returncode != 0:
        return [], "`%s` fails: %s" % (SMI, lines[0] if lines else "code %d" % call.returncode)
    return [[cell.strip() for cell in line.split(",", num_cells - 1)] for line in lines], None


def _gpu(row: list[str]) -> dict:
    index, uuid, driver, total, used, name = row
    return {
        "index": int(index),
        "uuid": uuid,
        "driver": driver,
        "name": name,
        "total_bytes": _bytes(total),
        "used_bytes": _bytes(used),
    }


def _with_owners(rows: list[list[str]]) -> list[dict]:
    table = Table() if rows else None
    return [
        {
            "uuid": uuid,
            "pid": int(pid),
            "used_bytes": _bytes(used),
            "name": name,
            # Of a container's process nvidia-smi may tell a pid that means nothing here.
            "process": process_of(int(pid), table) if table else None,
        }
        for uuid, pid, used, name in rows
    ]


def _bytes(mebibytes: str) -> int | None:
    return int(mebibytes) << 20 if mebibytes.isdigit() else None
