"""Amounts of memory and disk inside sentences."""

from __future__ import annotations

MIB = 1 << 20
GIB = 1 << 30


def amount(num_bytes: int) -> str:
    """`1.4 GiB`, `64 MiB`, `512 B`."""
    if num_bytes >= GIB:
        return f"{num_bytes / GIB:.1f} GiB"
    return f"{num_bytes // MIB} MiB" if num_bytes >= MIB else f"{num_bytes} B"
