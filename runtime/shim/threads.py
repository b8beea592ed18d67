"""Threads without `threading`, which takes longer to load than most calls last."""

from __future__ import annotations

import _thread


def begin(work) -> _thread.LockType:
    """Run `work` in a thread of its own. The lock can be had when that has ended."""
    ended = _thread.allocate_lock()
    ended.acquire()

    def run() -> None:
        try:
            work()
        finally:
            ended.release()

    _thread.start_new_thread(run, ())
    return ended
