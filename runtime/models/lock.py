"""A lock between processes that ends with its last holder, whatever way that one ends."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_S = 0.2


@contextmanager
def exclusive(path: Path, *, on_wait: Callable[[], None]) -> Iterator[int]:
    """Hold the lock file `path`; `on_wait` is called before each further attempt. Gives the file descriptor.

    A child process that is given the descriptor keeps the lock after its parent has died: nobody else enters
    while an orphan still writes. The file stays for ever: if it were removed, two processes could lock two
    files of one name.
    """
    with path.open("a") as file:
        while not _try_lock(file.fileno()):
            on_wait()
            time.sleep(POLL_S)
        yield file.fileno()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
