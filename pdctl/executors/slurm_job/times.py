"""Spans of time as Slurm writes and reads them."""

from __future__ import annotations

import math
import re

_DAYS = re.compile(r"(\d+)-(\d+)(?::(\d+))?(?::(\d+))?")  # from the largest part down
_NO_DAYS = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+)")  # from the smallest part up
_UNLIMITED = ("UNLIMITED", "INFINITE", "-1")


def time_s(text: str) -> float | None:
    """Seconds; infinite for `UNLIMITED`, None where Slurm would not understand it.

    >>> [time_s(text) for text in ("90", "4:00", "4:00:00", "1-12")]
    [5400.0, 240.0, 14400.0, 129600.0]
    """
    if text.upper() in _UNLIMITED:
        return math.inf
    if found := _DAYS.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    if found := _NO_DAYS.fullmatch(text):
        parts = [int(part) for part in found.groups() if part is not None]
        if len(parts) == 1:  # a number alone is minutes
            return parts[0] * 60.0
        hours, minutes, seconds = (0, *parts)[-3:]
        return float((hours * 60 + minutes) * 60 + seconds)
    return None
