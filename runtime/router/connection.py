"""Client side of one HTTP/1.1 connection to a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from runtime.router.exchange import MAX_ANSWER_BYTES, Exchange, Failure, FailureKind

MAX_HEAD_BYTES = 64 * 1024
SMALL_BYTES = 64 * 1024  # below, copying is cheaper than a scattered write


class Connection(asyncio.Protocol):
    """Carries one exchange at a time and keeps itself alive between two of them.

    `on_idle` gets the connection when it may carry another exchange, `on_lost` when it is closed.
    """

    def __init__(
        self, *, on_idle: Callable[[Connection], None], on_lost: Callable[[Connection], None], label: str
    ) -> None:
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._label = label
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: Exchange | None = None
        self._num_served = 0
        self._num_head_bytes = 0
        self._has_length = False  # else the body ends where the connection does
        self._is_interim = False  # inside a 1xx answer
        self._is_message_over = False
        self._may_reuse = False
        self._is_paused = False
        self.idle_since_s = 0.0  # clock of the event loop, set by the pool

    @property
    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def start(self, exchange: Exchange) -> None:
        """Write the request. The connection must be idle."""
        if self._transport.is_closing():
            exchange.fail(self._closed())
            return
        self._exchange = exchange
        self._num_head_bytes = 0
        self._has_length = self._is_interim = self._is_message_over = False
        exchange.link = self
        exchange.connecting = None
        if len(exchange.request[-1]) < SMALL_BYTES:
            self._transport.write(b"".join(exchange.request))  # one buffer is the fast path of uvloop
        else:
            self._transport.writelines(exchange.request)

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        self._exchange = None
        self._transport.abort()

    def close(self) -> None:
        self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:  # a worker that speaks unasked: nothing after it could be trusted
            self._transport.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._give_up(f"{self._label} did not answer in HTTP: {error}")
            return
        if self._is_message_over:
            self._finish(exchange)
        elif exchange.status is None:
            self._num_head_bytes += len(data)
            if self._num_head_bytes > MAX_HEAD_BYTES:
                self._give_up(f"{self._label} sent response headers above {MAX_HEAD_BYTES} bytes")
                return
        elif exchange.is_flooded:
            if not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()
        elif exchange.buffered_bytes > MAX_ANSWER_BYTES:
            self._give_up(f"{self._label} sent an answer above {MAX_ANSWER_BYTES} bytes")
            return
        exchange.on_change()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost(self)
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if exchange.status is not None and not self._has_length and exc is None:
            exchange.complete()
            exchange.on_change()
        else:
            exchange.fail(
                self._closed() if exchange.status is not None or self._num_head_bytes else self._unanswered()
            )

    # httptools callbacks, from inside feed_data

    def on_message_begin(self) -> None:
        if self._is_message_over:
            raise ValueError("two answers to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        name = name.lower()
        if name == b"content-type":
            exchange.content_type = value
        elif name in (b"content-length", b"transfer-encoding"):
            self._has_length = True
        elif name == b"retry-after":
            exchange.retry_after = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._is_interim = status < 200
        if not self._is_interim and self._exchange is not None:
            self._exchange.accept_head(status)

    def on_body(self, body: bytes) -> None:
        if self._exchange is not None:
            self._exchange.accept_body(body)

    def on_message_complete(self) -> None:
        self._is_message_over = not self._is_interim
        self._may_reuse = self._parser.should_keep_alive()  # the parser forgets it with its next callback

    def _finish(self, exchange: Exchange) -> None:
        self._exchange = None
        self._num_served += 1
        self.resume()
        if self._may_reuse:
            self._on_idle(self)
        else:
            self._transport.close()
        exchange.complete()

    def _give_up(self, message: str) -> None:
        exchange, self._exchange = self._exchange, None
        self._transport.abort()
        if exchange is not None:
            exchange.fail(Failure(kind=FailureKind.MALFORMED, message=message))

    def _unanswered(self) -> Failure:
        if self._num_served == 0:
            return self._closed()
        return Failure(kind=FailureKind.STALE, message=f"{self._label} had closed a kept-alive connection")

    def _closed(self) -> Failure:
        return Failure(
            kind=FailureKind.CLOSED, message=f"{self._label} closed the connection before it had answered"
        )
