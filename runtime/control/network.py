"""The network thread: one asyncio loop that owns every control link of a process.

The engine thread sees integers (`link_id`) and messages. Its calls return at once; what happens comes back
through the `LinkListener`. One link per decode/prefill pair, dialled by decode.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import threading

from runtime.control.link import Link, LinkListener
from runtime.control.messages import Message
from runtime.sockets import open_listener

MAX_LINKS = 1024
CONNECT_TIMEOUT_S = 5.0
CLOSE_TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)


class ControlNetwork:
    """Starts its thread at once; `close` ends all links and the thread."""

    def __init__(self, listener: LinkListener, *, heartbeat_interval_s: float) -> None:
        self._listener = listener
        self._interval_s = heartbeat_interval_s
        self._ids = itertools.count(1)
        self._links: dict[int, Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._thread.start()

    def listen(self, host: str) -> int:
        """Accept links on a free port of `host`, and return it. Raises OSError for a foreign address."""
        sock = open_listener(host, 0, backlog=128)
        asyncio.run_coroutine_threadsafe(self._listen(sock), self._loop).result(CLOSE_TIMEOUT_S)
        return sock.getsockname()[1]

    def dial(self, host: str, port: int) -> int:
        """Open a link. `on_up` or `on_down` follows, under the id returned here."""
        link_id = next(self._ids)
        self._loop.call_soon_threadsafe(self._start_dialling, link_id, host, port)
        return link_id

    def send(self, link_id: int, message: Message) -> None:
        """Queue a message. A link that is gone swallows it: its `on_down` is on the way or was there."""
        self._call(self._send, link_id, message)

    def close_link(self, link_id: int, reason: str) -> None:
        self._call(self._close_link, link_id, reason)

    def close(self) -> None:
        """Idempotent."""
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result(CLOSE_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_TIMEOUT_S)

    # The rest runs on the network thread.

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _call(self, call: object, *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: so are its links
            self._loop.call_soon_threadsafe(call, *arguments)  # type: ignore[arg-type]

    async def _listen(self, sock: socket.socket) -> None:
        self._server = await asyncio.start_server(self._accept, sock=sock)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._links) >= MAX_LINKS:
            _log.warning("refusing a control link: %d are open", len(self._links))
            writer.transport.abort()
            return
        await self._serve(next(self._ids), reader, writer)

    def _start_dialling(self, link_id: int, host: str, port: int) -> None:
        task = self._loop.create_task(self._dial(link_id, host, port))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dial(self, link_id: int, host: str, port: int) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(host, port)
        except OSError as error:  # TimeoutError is one
            self._listener.on_down(link_id, f"cannot connect: {error or 'timed out'}")
            return
        await self._serve(link_id, reader, writer)

    async def _serve(self, link_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(link_id, reader, writer, listener=self._listener, heartbeat_interval_s=self._interval_s)
        self._links[link_id] = link
        try:
            await link.run()
        finally:
            del self._links[link_id]

    def _send(self, link_id: int, message: Message) -> None:
        link = self._links.get(link_id)
        if link is not None:
            link.send(message)

    def _close_link(self, link_id: int, reason: str) -> None:
        link = self._links.get(link_id)
        if link is not None:
            link.close(reason)

    async def _shut_down(self) -> None:
        if self._server is not None:
            self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for link in list(self._links.values()):
            link.close("this side is shutting down")
        for task in self._tasks:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=1.0)
