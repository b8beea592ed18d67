"""Writes one HTTP answer to the client, whole or as a stream, and errors in OpenAI's form."""

from __future__ import annotations

import orjson

from runtime.router.asgi import Send

JSON = b"application/json"
CLIENT_CLOSED_REQUEST = 499  # nginx's number for an answer that nobody waits for


def error_body(message: str, *, status: int, code: str) -> bytes:
    """The JSON that OpenAI's clients read an error from."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


class Reply:
    """The answer to one request. `status` is what the client got, for the metrics."""

    __slots__ = ("_ends_event", "_has_started", "_request_id", "_send", "status")

    def __init__(self, send: Send, request_id: bytes) -> None:
        self._send = send
        self._request_id = request_id
        self._has_started = False
        self._ends_event = True
        self.status = CLIENT_CLOSED_REQUEST

    async def whole(
        self, status: int, body: bytes, *, content_type: bytes | None = JSON, retry_after: bytes | None = None
    ) -> None:
        headers = [
            (b"content-type", content_type or JSON),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", self._request_id),
        ]
        if retry_after is not None:
            headers.append((b"retry-after", retry_after))
        if status == 413:
            headers.append((b"connection", b"close"))  # the rest of the body is not read
        await self._start(status, headers)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def error(self, status: int, message: str, *, code: str) -> None:
        """An error of ours, in the form that still fits: JSON, an event of the stream, a broken connection.

        After half an event nothing can be said any more that a client could parse. Returning without the end
        of the body makes the server close the connection, which every client reports.
        """
        body = error_body(message, status=status, code=code)
        if not self._has_started:
            await self.whole(status, body)
        elif self._ends_event:
            await self.chunk(b"data: " + body + b"\n\n", is_last=True)

    async def start_stream(self, status: int, content_type: bytes | None) -> None:
        headers = [
            (b"content-type", content_type or b"text/event-stream"),
            (b"cache-control", b"no-cache"),
            (b"x-request-id", self._request_id),
        ]
        await self._start(status, headers)

    async def chunk(self, body: bytes, *, is_last: bool) -> None:
        """Pass on a piece of the stream; waits while the client reads slower than we write."""
        if body:
            self._ends_event = body.endswith((b"\n\n", b"\r\n\r\n"))
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self._has_started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
