"""The one place where tests spend time waiting: look again and again, until it is so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(look: Callable[[], Found], what: str = "it", timeout_s: float = 60.0) -> Found:
    """What `look` gave when it gave something true. The time-out is for what hangs, not for what is slow."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.02)
    return found
