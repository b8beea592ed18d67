"""Notices that the client has closed its connection."""

from __future__ import annotations

import asyncio

from runtime.router.asgi import Receive


class HangUp:
    """Cancels the task that made it when the client closes its connection, until `release` is called."""

    def __init__(self, receive: Receive) -> None:
        self.has_happened = False
        self._receive = receive
        self._owner = asyncio.current_task()
        # Ends by itself: the server also says "disconnect" when the answer has been written.
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def release(self) -> None:
        self._owner = None

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._owner is not None:
            self.has_happened = True
            self._owner.cancel()
