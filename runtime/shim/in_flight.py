"""Calls that change a deployment go on when their operator dies; who works on it next waits for them.

Such a call holds a shared flock on the deployment's own directory: nothing is written, nothing left behind.
"""

from __future__ import annotations

import fcntl
import os
import time

from .record import make_private_dirs

POLL_S = 0.02


def enter(root: str, deployment: str, is_new: bool = False) -> int | None:
    """Say that this call changes the deployment, until the descriptor is closed. None: that can't be said.

    With `is_new` there may be no directory yet. What is wrong with it, the call itself will tell.
    """
    directory = os.path.join(root, deployment)
    try:
        if is_new:
            make_private_dirs(directory)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except OSError:  # a file system without locks
        os.close(descriptor)
        return None
    return descriptor


def leave(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def settle(root: str, deployment: str, limit_s: float) -> None:
    """Return when no call changes the deployment any more, or after `limit_s`."""
    deadline = time.monotonic() + limit_s
    try:
        descriptor = os.open(os.path.join(root, deployment), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # there is no such deployment
        return
    try:
        while not _is_alone(descriptor) and time.monotonic() < deadline:
            time.sleep(POLL_S)
    finally:
        os.close(descriptor)


def _is_alone(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True
