"""The lock of a deployment, for people."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pdctl.lifecycle.lock import LockState
from pdctl.state.lock import Owner
from pdctl.views.canvas import Canvas, Style
from pdctl.views.quantities import duration
from pdctl.views.text import printable


def lock_lines(state: LockState, canvas: Canvas) -> Iterator[str]:
    """Who, from where, since when, what for; and whether they still live, where this machine can tell."""
    if state.holder is None:
        yield f"{state.name}: {canvas.paint('not locked', Style.GOOD)}"
        return
    held_s = max(0.0, state.seen_at - state.holder.since)
    yield f"{state.name}: {canvas.paint('locked', Style.WARNING)} by {_who(state.holder)}"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state.holder.since))
    yield f"  for `{printable(state.holder.verb)}`, since {since} ({duration(held_s)})"
    if state.is_dead:
        yield "  that process is gone: the next command takes the lock over"


def broken_lines(state: LockState, *, is_broken: bool) -> Iterator[str]:
    if state.holder is None:
        yield f"{state.name}: not locked"
    elif is_broken:
        yield f"{state.name}: took the lock from {_who(state.holder)}"
    else:
        yield f"{state.name}: {_who(state.holder)} has given the lock back meanwhile"


def _who(owner: Owner) -> str:
    return f"{printable(owner.who)} (pid {owner.pid})"
