"""The one door into the engine thread: any thread posts a call, which runs there between two steps."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from runtime.control.link import LinkListener
from runtime.control.messages import Message

Call = Callable[[], None]
Post = Callable[[Call], object]


class Mailbox:
    """A queue that wakes its reader. Its posters bound it: requests, links and sends are all counted."""

    def __init__(self) -> None:
        self._calls: deque[Call] = deque()
        self._arrived = threading.Condition()
        self._is_closed = False

    def post(self, call: Call) -> bool:
        """Never blocks. After `close` the call is dropped, and the answer is False."""
        with self._arrived:
            if self._is_closed:
                return False
            self._calls.append(call)
            self._arrived.notify()
            return True

    def take(self, timeout_s: float) -> deque[Call]:
        """All calls so far, in order; waits at most `timeout_s` for a first one."""
        with self._arrived:
            if not self._calls and timeout_s > 0:
                self._arrived.wait_for(lambda: self._calls, timeout_s)
            calls, self._calls = self._calls, deque()
            return calls

    def close(self) -> deque[Call]:
        """Take what is there, and let nothing more in."""
        with self._arrived:
            self._is_closed = True
            calls, self._calls = self._calls, deque()
            return calls


@dataclass(frozen=True, slots=True)
class PostedLinks:
    """A `LinkListener` for the network thread that tells another one, on the engine thread."""

    post: Post
    listener: LinkListener

    def on_up(self, link_id: int) -> None:
        self.post(partial(self.listener.on_up, link_id))

    def on_message(self, link_id: int, message: Message) -> None:
        self.post(partial(self.listener.on_message, link_id, message))

    def on_down(self, link_id: int, reason: str) -> None:
        self.post(partial(self.listener.on_down, link_id, reason))
