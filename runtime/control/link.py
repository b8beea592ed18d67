"""One control connection: frames in, frames out, and the heartbeat that tells a silent peer from an idle one.

Runs on the network thread (asyncio). A link ends for exactly one reason, which its `on_down` is told once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from runtime.control.messages import (
    LENGTH,
    MAX_FRAME_BYTES,
    Message,
    MessageError,
    Ping,
    pack_message,
    unpack_message,
)

MAX_UNSENT_BYTES = 64 << 20  # a peer that lets more than this pile up does not read
NUM_MISSED_HEARTBEATS = 3
FLUSH_TIMEOUT_S = 2.0

_log = logging.getLogger(__name__)


class LinkListener(Protocol):
    """Who is told about links. Called on the network thread; must not block."""

    def on_up(self, link_id: int) -> None: ...

    def on_message(self, link_id: int, message: Message) -> None: ...

    def on_down(self, link_id: int, reason: str) -> None: ...


class Link:
    """Carries messages over one stream until it breaks, falls silent, or talks nonsense."""

    def __init__(
        self,
        link_id: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        listener: LinkListener,
        heartbeat_interval_s: float,
    ) -> None:
        self.link_id = link_id
        self._reader = reader
        self._writer = writer
        self._listener = listener
        self._interval_s = heartbeat_interval_s
        self._reason: str | None = None

    async def run(self) -> None:
        """Deliver messages until the end, then close and report why."""
        heartbeat = asyncio.create_task(self._beat())
        self._listener.on_up(self.link_id)
        try:
            while True:
                message = await self._read()
                if not isinstance(message, Ping):
                    self._listener.on_message(self.link_id, message)
        except TimeoutError:
            self._end(f"the peer was silent for {self._silence_s():g} s")
        except asyncio.IncompleteReadError:
            self._end("the peer closed the connection")
        except OSError as error:
            self._end(f"the connection broke: {error}")
        except MessageError as error:
            _log.warning("closing a control link: %s", error)
            self._end(f"the peer sent a bad message: {error}")
        finally:
            heartbeat.cancel()
            if not self._writer.is_closing():
                self._writer.transport.abort()
            self._listener.on_down(self.link_id, self._reason or "this side is shutting down")

    def send(self, message: Message) -> None:
        """Queue a message; after the end it goes nowhere, and `on_down` has said so."""
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.close("the peer does not read its messages")
            return
        self._writer.write(pack_message(message))

    def close(self, reason: str) -> None:
        """End the link from this side. What is queued still goes out; `run` reports the reason at once."""
        self._end(reason)
        self._writer.close()
        self._reader.feed_eof()
        # A peer that does not read would keep the socket open for as long as it likes.
        asyncio.get_running_loop().call_later(FLUSH_TIMEOUT_S, self._writer.transport.abort)

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason

    async def _read(self) -> Message:
        async with asyncio.timeout(self._silence_s()):
            (num_bytes,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            if num_bytes > MAX_FRAME_BYTES:
                raise MessageError(f"a frame of {num_bytes} bytes, at most {MAX_FRAME_BYTES} are read")
            return unpack_message(await self._reader.readexactly(num_bytes))

    async def _beat(self) -> None:
        while True:
            self.send(Ping())
            await asyncio.sleep(self._interval_s)

    def _silence_s(self) -> float:
        return NUM_MISSED_HEARTBEATS * self._interval_s
