"""Ports for processes that a test starts: a claimed one stays nobody else's until they take it.

To bind port 0, read its number and close it gives a port that is anybody's a moment later: the kernel gives
it out again, to a test beside this one, or to any connection that goes out.
"""

from __future__ import annotations

import contextlib
import fcntl
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

# Below what the kernel gives out by itself, and outside the ranges that SGLang draws from.
_PORTS = range(10000, 14900)
_CLAIMS = Path(tempfile.gettempdir()) / "pdctl-test-ports"


class PortClaims:
    """Those of one process of pytest. Byte n of the file that all share is locked by who claims port n."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._ours: set[int] = set()

    def take(self, num: int = 1) -> int:
        """The first of so many neighbours, free on every address of this machine."""
        start = random.randrange(len(_PORTS))
        for offset in range(len(_PORTS) - num):
            first = _PORTS[(start + offset) % (len(_PORTS) - num)]
            if self._claim(range(first, first + num)):
                return first
        raise RuntimeError(f"no {num} free ports from {_PORTS.start} to {_PORTS.stop}")

    def _claim(self, ports: range) -> bool:
        """A claim that fails half way keeps what it has: others take elsewhere."""
        return all(port not in self._ours and self._lock(port) and _is_free(port) for port in ports)

    def _lock(self, port: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        self._ours.add(port)
        return True


@contextlib.contextmanager
def open_claims() -> Iterator[PortClaims]:
    """All go with the context, or with the process."""
    with _CLAIMS.open("ab") as file:
        yield PortClaims(file)


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True
