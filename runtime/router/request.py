"""Reads the client's request: body within its bound, and the headers that are passed on to the workers."""

from __future__ import annotations

import random
from dataclasses import dataclass

from runtime.router.asgi import Receive, Scope
from runtime.router.body import RequestBody

# Route -> prefix of the request ids we make; both as sglang-router has them.
GENERATION_ROUTES = {"/generate": b"gnt-", "/v1/completions": b"cmpl-", "/v1/chat/completions": b"chatcmpl-"}

_PASSED_ON = {
    b"authorization": b"Authorization: ",
    b"traceparent": b"traceparent: ",
}


class PayloadTooLargeError(Exception):
    """The body is above the bound."""


class HungUpError(Exception):
    """The client closed its connection while it was sending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """What the headers say. `passed_on` are whole header lines, Content-Length not among them."""

    request_id: bytes
    passed_on: bytes
    content_length: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    path: str
    head: RequestHead
    body: RequestBody


def read_head(scope: Scope) -> RequestHead:
    content_type = b"application/json"
    request_id = b""
    content_length = None
    passed_on = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value
        elif name == b"x-request-id":
            request_id = value
        elif name == b"content-length":
            content_length = int(value)  # the server has refused what is not a number
        elif name in _PASSED_ON:
            passed_on += _PASSED_ON[name] + value + b"\r\n"
    if not request_id:
        request_id = GENERATION_ROUTES.get(scope["path"], b"") + b"%024x" % random.getrandbits(96)
    passed_on += b"Content-Type: " + content_type + b"\r\nX-Request-ID: " + request_id + b"\r\n"
    return RequestHead(request_id=request_id, passed_on=passed_on, content_length=content_length)


async def read_payload(receive: Receive, head: RequestHead, *, max_bytes: int) -> bytes:
    """The whole body. Raises PayloadTooLargeError above `max_bytes`, HungUpError if it is cut short."""
    if head.content_length is not None and head.content_length > max_bytes:
        raise PayloadTooLargeError
    message = await receive()
    if not message.get("more_body", False) and message["type"] == "http.request":
        return _bounded(message.get("body", b""), 0, max_bytes)
    chunks: list[bytes] = []
    num_bytes = 0
    while True:
        if message["type"] == "http.disconnect":
            raise HungUpError
        chunks.append(_bounded(message.get("body", b""), num_bytes, max_bytes))
        num_bytes += len(chunks[-1])
        if not message.get("more_body", False):
            return b"".join(chunks)
        message = await receive()


def _bounded(chunk: bytes, num_bytes_before: int, max_bytes: int) -> bytes:
    if num_bytes_before + len(chunk) > max_bytes:
        raise PayloadTooLargeError
    return chunk
