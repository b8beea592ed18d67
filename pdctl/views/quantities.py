"""Numbers as people say them: 1m 12s, 431 MiB, 2 errors."""

from __future__ import annotations

_STEPS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"))
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def duration(seconds: float) -> str:
    """Two parts at most: `0.4s`, `12s`, `1m 12s`, `2h 5m`, `3d 4h`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    for large, large_name, small, small_name in _STEPS:
        if whole >= large:
            rest = whole % large // small
            return (
                f"{whole // large}{large_name} {rest}{small_name}"
                if rest
                else f"{whole // large}{large_name}"
            )
    return f"{whole}s"


def size(num_bytes: float) -> str:
    """`512 B`, `1.4 GiB`, `431 MiB`: one decimal below ten, none above."""
    unit = 0
    while num_bytes >= 1023.5 and unit < len(_UNITS) - 1:
        num_bytes /= 1024
        unit += 1
    digits = 1 if unit > 0 and num_bytes < 9.95 else 0
    return f"{num_bytes:.{digits}f} {_UNITS[unit]}"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 error`, `2 errors`, `2 processes` where the plural is said."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
