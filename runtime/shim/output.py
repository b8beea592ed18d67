"""The worker's output file, kept within bounds without the worker's help.

The worker writes to the file itself, with O_APPEND: output passes no pipe that would break if its shim
died. So the file is rotated by copy and truncate; lines written between the two are lost, a few in a flood.
"""

from __future__ import annotations

import os

from .record import OUTPUT, OUTPUT_ROTATED

DEFAULT_MAX_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
SHORTEST_WAIT_S = 0.05
LONGEST_WAIT_S = 1.0


class Output:
    """`output.log` of one run. It may grow past its bound by what is written within one wait."""

    def __init__(self, directory: str, max_bytes: object) -> None:
        self._path = os.path.join(directory, OUTPUT)
        self._rotated = os.path.join(directory, OUTPUT_ROTATED)
        self._max_bytes = max_bytes if isinstance(max_bytes, int) and max_bytes > 0 else DEFAULT_MAX_BYTES
        self._wait_s = SHORTEST_WAIT_S
        self.descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def keep_bounded(self) -> float:
        """Rotate if it is time; returns the seconds until the next look, fewer while output comes fast."""
        if os.fstat(self.descriptor).st_size > self._max_bytes:
            self._rotate()
            self._wait_s = SHORTEST_WAIT_S
        else:
            self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)
        return self._wait_s

    def _rotate(self) -> None:
        temporary = self._rotated + ".tmp"
        try:
            self._copy(temporary)
            os.replace(temporary, self._rotated)
        except OSError:
            # No room for the copy. A bounded file is worth more than its past.
            for path in (temporary, self._rotated):
                try:
                    os.unlink(path)
                except OSError:
                    pass
        os.ftruncate(self.descriptor, 0)

    def _copy(self, path: str) -> None:
        """All of it, unless a flood made it much too large: then its end. At most three times the bound."""
        size = os.fstat(self.descriptor).st_size
        offset = size - self._max_bytes if size > 2 * self._max_bytes else 0
        end = offset + 3 * self._max_bytes
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as copy:
            while offset < end:
                chunk = os.pread(self.descriptor, CHUNK_BYTES, offset)
                if not chunk:
                    return
                copy.write(chunk)
                offset += len(chunk)
