"""RDMA devices as the kernel lists them, and whether they can reach the memory of accelerators."""

from __future__ import annotations

import os

MAX_DEVICES = 256
PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
DMA_BUF_SINCE = (5, 12)  # the kernel whose RDMA drivers can register another driver's memory


def rdma_devices(sysfs: str = "/sys") -> list[dict]:
    """`{"name", "ports": [{"number", "state", "link_layer", "has_gid"}]}` of each device."""
    folder = os.path.join(sysfs, "class/infiniband")
    return [
        {"name": name, "ports": [_port(folder, name, number) for number in _names(folder, name, "ports")]}
        for name in _names(folder)[:MAX_DEVICES]
    ]


def gpu_direct() -> str | None:
    """What lets an RDMA device read and write device memory; null when nothing was found that does."""
    modules = {line.split(" ", 1)[0] for line in _read("/proc/modules").splitlines()}
    for module in PEER_MODULES:
        if module in modules:
            return module
    return dma_buf(_read("/proc/driver/nvidia/version"), os.uname().release)


def dma_buf(driver: str, kernel: str) -> str | None:
    """Only the open driver exports device memory that way."""
    numbers = tuple(int(number) if number.isdigit() else 0 for number in kernel.split(".")[:2])
    return "dma-buf" if "Open Kernel Module" in driver and numbers >= DMA_BUF_SINCE else None


def _port(folder: str, name: str, number: str) -> dict:
    port = os.path.join(folder, name, "ports", number)
    gids = (_read(os.path.join(port, "gids", each)) for each in _names(port, "gids"))
    return {
        "number": int(number) if number.isdigit() else 0,
        "state": _read(os.path.join(port, "state")).rpartition(": ")[2],  # `4: ACTIVE`
        "link_layer": _read(os.path.join(port, "link_layer")),
        "has_gid": any(gid.strip("0:") for gid in gids),
    }


def _names(*parts: str) -> list[str]:
    try:
        return sorted(os.listdir(os.path.join(*parts)))
    except OSError:  # no RDMA drivers, or no such table for this kind of port
        return []


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536).strip()
    except OSError:  # an unused entry of a GID table is an error to read
        return ""
