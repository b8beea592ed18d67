"""A stderr that may go away."""

from __future__ import annotations

from typing import TextIO


class Forgiving:
    """Writes like `stream` until its reader is gone, then nowhere.

    An operation must not die half way because nobody watches it any more.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_gone = False

    def write(self, text: str) -> int:
        if not self._is_gone:
            try:
                self._stream.write(text)
            except OSError:  # a closed pipe, a terminal that hung up
                self._is_gone = True
        return len(text)

    def flush(self) -> None:
        if not self._is_gone:
            try:
                self._stream.flush()
            except OSError:
                self._is_gone = True
