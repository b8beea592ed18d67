"""One HTTP request to one worker, and what has come back so far."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

# When a client reads slower than the worker writes: with more bytes waiting, the worker is not read.
HIGH_WATER_BYTES = 256 * 1024
# An answer that is not an event stream is held whole, so that a death in its middle can still be retried.
MAX_ANSWER_BYTES = 512 * 1024 * 1024


class FailureKind(StrEnum):
    """Why an exchange has no answer."""

    REFUSED = "refused"  # no connection could be made
    STALE = "stale"  # a kept-alive connection was closed by the worker as we wrote to it: nobody's fault
    CLOSED = "closed"  # the connection ended before the answer did
    MALFORMED = "malformed"  # not HTTP, or larger than we hold
    CANCELLED = "cancelled"  # by us


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    kind: FailureKind
    message: str


CANCELLED = Failure(kind=FailureKind.CANCELLED, message="cancelled by the router")


class Link(Protocol):
    """The connection below an exchange."""

    def resume(self) -> None: ...

    def abort(self) -> None: ...


def _ignore() -> None:
    return None


class Exchange:
    """State of one request, written by the connection and read by the request's coroutine, on one loop.

    It is over when `is_complete` or `failure` is set; then `on_end` has been called, exactly once.
    `on_change` is called after each network read that changed something.
    """

    __slots__ = (
        "buffered_bytes",
        "chunks",
        "connecting",
        "content_type",
        "failure",
        "is_complete",
        "is_event_stream",
        "keeps_body",
        "link",
        "on_change",
        "on_end",
        "request",
        "retry_after",
        "status",
    )

    def __init__(self, request: tuple[bytes, ...], *, keeps_body: bool = True) -> None:
        self.request = request
        self.keeps_body = keeps_body  # False drops the body of a 2xx answer as it comes
        self.on_change: Callable[[], None] = _ignore
        self.on_end: Callable[[], None] = _ignore
        self.link: Link | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.status: int | None = None
        self.content_type: bytes | None = None
        self.retry_after: bytes | None = None
        self.is_event_stream = False
        self.chunks: list[bytes] = []
        self.buffered_bytes = 0
        self.is_complete = False
        self.failure: Failure | None = None

    @property
    def is_over(self) -> bool:
        return self.is_complete or self.failure is not None

    @property
    def is_success(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def is_flooded(self) -> bool:
        """More is waiting than the connection should read ahead."""
        return self.is_event_stream and self.buffered_bytes > HIGH_WATER_BYTES

    def take(self) -> bytes:
        """Hand out the body bytes that have come since the last call, and let more come."""
        chunks = self.chunks
        taken = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self.buffered_bytes = 0
        if self.link is not None:
            self.link.resume()
        return taken

    def accept_head(self, status: int) -> None:
        self.status = status
        content_type = self.content_type or b""
        # An error is read whole whatever its type, else one that is long would be held back for ever.
        self.is_event_stream = self.is_success and content_type.startswith(b"text/event-stream")

    def accept_body(self, chunk: bytes) -> None:
        if self.keeps_body or not self.is_success:
            self.chunks.append(chunk)
            self.buffered_bytes += len(chunk)

    def complete(self) -> None:
        """The last byte is here; the caller calls `on_change`."""
        self.is_complete = True
        self.link = None
        self.on_end()

    def fail(self, failure: Failure) -> None:
        if self.is_over:
            return
        self.failure = failure
        self.link = None
        self.connecting = None
        self.on_end()
        self.on_change()

    def cancel(self) -> None:
        """Close the connection below at once, which is how a worker learns to abort. Idempotent."""
        if self.is_over:
            return
        if self.link is not None:
            self.link.abort()
        elif self.connecting is not None:
            self.connecting.cancel()
        self.fail(CANCELLED)
