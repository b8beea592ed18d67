"""The ASGI ends of a request: read a bounded body, notice a client that left, send JSON or a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from runtime.engine.server.errors import RequestError, error_body

MAX_BODY_BYTES = 16 * 2**20
# A client that is still writing doesn't see a 413 if we close on it: a body somewhat too large is read whole.
_MAX_DRAINED_BYTES = 4 * MAX_BODY_BYTES

STREAM_DONE = b"data: [DONE]\n\n"


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


def header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return value.decode("latin-1")
    return None


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request; 413 when it is larger than `MAX_BODY_BYTES`."""
    chunks: list[bytes] = []
    num_bytes = 0
    while num_bytes <= _MAX_DRAINED_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk = message.get("body", b"")
        num_bytes += len(chunk)
        if num_bytes <= MAX_BODY_BYTES:
            chunks.append(chunk)
        if not message.get("more_body", False):
            break
    if num_bytes > MAX_BODY_BYTES:
        raise RequestError(f"the body is larger than {MAX_BODY_BYTES} bytes", status=413)
    return b"".join(chunks)


async def run_while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run `work`, and cancel it when the client goes away. The body must have been read before."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
    finally:
        watching.cancel()
        working.cancel()  # no effect when it is done
        await asyncio.gather(working, watching, return_exceptions=True)
    working.result()


async def send_json(send: Send, value: Any, *, status: int = 200) -> None:
    await send_bytes(send, orjson.dumps(value), status=status)


async def send_error(send: Send, error: RequestError) -> None:
    await send_bytes(send, error_body(error), status=error.status, close=error.status == 413)


async def send_bytes(send: Send, body: bytes, *, status: int = 200, close: bool = False) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def start_stream(send: Send) -> None:
    headers = [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),  # nginx would otherwise gather tokens into large blocks
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def send_stream_part(send: Send, part: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": part, "more_body": not is_last})


def stream_event(value: Any) -> bytes:
    """One server-sent event; JSON never holds a line break, so one `data:` line is enough."""
    return b"data: " + orjson.dumps(value) + b"\n\n"


def stream_error(error: RequestError) -> bytes:
    return b"data: " + error_body(error) + b"\n\n"


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
