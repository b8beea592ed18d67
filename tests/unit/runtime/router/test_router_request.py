from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runtime.router.request import HungUpError, PayloadTooLargeError, read_head, read_payload


def receiving(*messages: dict[str, Any]) -> Callable[[], Awaitable[dict[str, Any]]]:
    left = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(left)

    return receive


def piece(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


DISCONNECT = {"type": "http.disconnect"}


def read(*messages: dict[str, Any], max_bytes: int = 10, length: bytes | None = None) -> bytes:
    headers = [] if length is None else [(b"content-length", length)]
    head = read_head({"path": "/generate", "headers": headers})
    return asyncio.run(read_payload(receiving(*messages), head, max_bytes=max_bytes))


def test_pieces_are_put_together() -> None:
    assert read(piece(b"ab", more=True), piece(b"", more=True), piece(b"cd", more=False)) == b"abcd"


def test_body_of_exactly_the_bound_is_taken() -> None:
    assert read(piece(b"x" * 10, more=False), length=b"10") == b"x" * 10


def test_announced_length_above_the_bound_is_refused_unread() -> None:
    with pytest.raises(PayloadTooLargeError):
        read(length=b"11")


def test_unannounced_length_is_refused_with_the_piece_that_passes_the_bound() -> None:
    with pytest.raises(PayloadTooLargeError):
        read(piece(b"x" * 6, more=True), piece(b"x" * 6, more=True))


@pytest.mark.parametrize("before", [(), (piece(b"a", more=True),)])
def test_client_that_leaves_while_it_sends_has_hung_up(before: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(HungUpError):
        read(*before, DISCONNECT)


@pytest.mark.parametrize(
    ("path", "prefix"),
    [("/generate", b"gnt-"), ("/v1/completions", b"cmpl-"), ("/v1/chat/completions", b"chatcmpl-")],
)
def test_request_without_an_id_gets_one_of_its_route(path: str, prefix: bytes) -> None:
    ids = {read_head({"path": path, "headers": []}).request_id for _ in range(100)}
    assert len(ids) == 100
    assert all(each.startswith(prefix) for each in ids)
