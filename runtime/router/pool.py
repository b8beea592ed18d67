"""Kept-alive connections to one worker.

Why not aiohttp or httpx: one exchange costs 43 us of CPU here, 230 us through aiohttp 3.14 and 1,300 us
through httpx 0.28 (one run on a shared 2-core machine, nginx answering), and every request makes two.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from runtime.router.connection import Connection
from runtime.router.exchange import Exchange, Failure, FailureKind

CONNECT_TIMEOUT_S = 5.0
# uvicorn, as SGLang uses it, closes an idle connection after 5 s (the reference engine after 75). A request
# written to one that is just being closed is lost, so ours are not reused when they are nearly that old.
MAX_IDLE_S = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    content_type: bytes | None
    body: bytes


class FetchError(Exception):
    """No whole answer came; the text says why."""


class ConnectionPool:
    """Opens connections when none is idle; the newest idle one is used first, so that others can age."""

    def __init__(self, *, host: str, port: int, label: str) -> None:
        self._host = host
        self._port = port
        self._label = label  # how messages name the worker
        self._idle: list[Connection] = []
        self._loop = asyncio.get_running_loop()

    def send(self, exchange: Exchange) -> None:
        """Start the exchange and return at once; how it goes is told through `exchange.on_change`."""
        connection = self._take_idle()
        if connection is not None:
            connection.start(exchange)
        else:
            exchange.connecting = self._loop.create_task(self._open(exchange))

    def close_idle(self) -> None:
        """Close the idle connections, as one that was stale says the same of its neighbours."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close_aged(self) -> None:
        """Close idle connections past their age, of a peer that never closes by itself."""
        oldest_s = self._loop.time() - MAX_IDLE_S
        aged = [connection for connection in self._idle if connection.idle_since_s < oldest_s]
        for connection in aged:
            connection.close()

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closing and self._loop.time() - connection.idle_since_s < MAX_IDLE_S:
                return connection
            connection.close()
        return None

    async def _open(self, exchange: Exchange) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await self._loop.create_connection(self._connection, self._host, self._port)
        except TimeoutError:
            exchange.fail(self._refused(f"no connection in {CONNECT_TIMEOUT_S:g} s"))
        except OSError as error:
            # Event loops word it differently, but the number is the system's (unless a name did not resolve).
            number = error.errno or 0
            exchange.fail(self._refused(os.strerror(number) if number > 0 else str(error)))
        else:
            connection.start(exchange)

    def _connection(self) -> Connection:
        return Connection(on_idle=self._put_idle, on_lost=self._forget, label=self._label)

    def _put_idle(self, connection: Connection) -> None:
        connection.idle_since_s = self._loop.time()
        self._idle.append(connection)

    def _forget(self, connection: Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def _refused(self, reason: str) -> Failure:
        return Failure(kind=FailureKind.REFUSED, message=f"{self._label} cannot be reached: {reason}")


async def fetch(pool: ConnectionPool, request: tuple[bytes, ...], *, timeout_s: float) -> Answer:
    """Send one request and wait for its whole answer. Raises FetchError."""
    changed = asyncio.Event()
    exchange = Exchange(request)
    exchange.on_change = changed.set
    pool.send(exchange)
    try:
        async with asyncio.timeout(timeout_s):
            while not exchange.is_over:
                await changed.wait()
                changed.clear()
    except TimeoutError as error:
        raise FetchError(f"no answer in {timeout_s:g} s") from error
    finally:
        exchange.cancel()
    if exchange.failure is not None or exchange.status is None:
        raise FetchError(exchange.failure.message if exchange.failure else "no answer")
    return Answer(status=exchange.status, content_type=exchange.content_type, body=exchange.take())
