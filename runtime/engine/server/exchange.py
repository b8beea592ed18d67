"""The one crossing from engine threads to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class LoopExchange(Generic[Item]):
    """Carries items from any thread into callbacks on the event loop, in order, many per wakeup.

    A step of the engine produces an event for every running request. Waking the loop costs a system call, so
    only the first event of a burst does it; the loop then takes all that have gathered.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[tuple[Callable[[Item], None], Item]] = deque()
        self._is_scheduled = False

    def post(self, deliver: Callable[[Item], None], item: Item) -> None:
        """Have `deliver(item)` called on the event loop. Any thread may post."""
        self._items.append((deliver, item))
        if self._is_scheduled:
            return
        # Two threads may both come here: the loop then drains twice, the second time nothing.
        self._is_scheduled = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        # Cleared first: an item posted after the last popleft then schedules a drain of its own.
        self._is_scheduled = False
        for _ in range(len(self._items)):
            deliver, item = self._items.popleft()
            deliver(item)
        if self._items and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._drain)
