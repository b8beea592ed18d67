from __future__ import annotations

import asyncio

import pytest

from runtime.router.address import Role
from runtime.router.exchange import Exchange, Failure, FailureKind
from runtime.router.pair import Pair, Verdict, is_decided, judge

CLOSED = Failure(kind=FailureKind.CLOSED, message="gone")


def exchange(
    status: int | None = None, *, body: bytes = b"", is_whole: bool = False, is_stream: bool = False
) -> Exchange:
    made = Exchange((b"",))
    if status is not None:
        made.content_type = b"text/event-stream" if is_stream else b"application/json"
        made.accept_head(status)
    if body:
        made.accept_body(body)
    if is_whole:
        made.complete()
    return made


def failed() -> Exchange:
    made = exchange()
    made.fail(CLOSED)
    return made


@pytest.mark.parametrize(
    ("prefill", "decode", "needs_prefill_body", "verdict", "role"),
    [
        (exchange(), exchange(), False, Verdict.WAIT, Role.DECODE),
        (exchange(200, is_whole=True), exchange(), False, Verdict.WAIT, Role.DECODE),
        (exchange(), exchange(200, is_whole=True), False, Verdict.ANSWER, Role.DECODE),
        (exchange(), exchange(200, is_whole=True), True, Verdict.WAIT, Role.DECODE),
        (exchange(200, is_whole=True), exchange(200, is_whole=True), True, Verdict.ANSWER, Role.DECODE),
        (failed(), exchange(200, is_whole=True), False, Verdict.ANSWER, Role.DECODE),
        (failed(), exchange(200, is_whole=True), True, Verdict.FAIL, Role.PREFILL),
        (exchange(500, is_whole=True), exchange(200, is_whole=True), True, Verdict.FAIL, Role.PREFILL),
        (failed(), exchange(), False, Verdict.FAIL, Role.PREFILL),
        (exchange(), failed(), False, Verdict.FAIL, Role.DECODE),
        (exchange(503, is_whole=True), exchange(), False, Verdict.FAIL, Role.PREFILL),
        (exchange(503, body=b"half"), exchange(), False, Verdict.WAIT, Role.DECODE),
        (exchange(400, is_whole=True), exchange(), False, Verdict.REJECT, Role.PREFILL),
        (exchange(), exchange(400, is_whole=True), False, Verdict.REJECT, Role.DECODE),
        (exchange(), exchange(429, is_whole=True), False, Verdict.FAIL, Role.DECODE),
        (exchange(), exchange(200, is_stream=True), False, Verdict.WAIT, Role.DECODE),
        (exchange(), exchange(200, body=b"x", is_stream=True), False, Verdict.STREAM, Role.DECODE),
        (failed(), exchange(200, body=b"x", is_stream=True), False, Verdict.FAIL, Role.PREFILL),
        (exchange(), exchange(200, body=b"x"), False, Verdict.WAIT, Role.DECODE),
    ],
)
def test_state_of_both_legs_decides(
    prefill: Exchange, decode: Exchange, needs_prefill_body: bool, verdict: Verdict, role: Role
) -> None:
    pair = Pair(prefill=prefill, decode=decode, needs_prefill_body=needs_prefill_body)
    assert judge(pair) == (verdict, role)


def test_waiting_ends_with_the_change_that_decides() -> None:
    async def scenario() -> bool:
        pair = Pair(prefill=exchange(), decode=exchange(), needs_prefill_body=False)
        waiting = asyncio.ensure_future(pair.wait(is_decided))
        await asyncio.sleep(0)
        pair.prefill.accept_head(200)
        pair.prefill.complete()
        pair.prefill.on_change()
        await asyncio.sleep(0)
        was_woken_early = waiting.done()
        pair.decode.fail(CLOSED)
        await waiting
        return was_woken_early

    assert asyncio.run(scenario()) is False


def test_closing_ends_both_legs() -> None:
    pair = Pair(prefill=exchange(), decode=exchange(), needs_prefill_body=False)
    pair.close()
    assert pair.prefill.failure is not None
    assert pair.prefill.failure.kind is FailureKind.CANCELLED
    assert pair.decode.failure is not None


def test_prefill_may_finish_when_decode_has_answered() -> None:
    async def scenario() -> bool:
        pair = Pair(prefill=exchange(), decode=exchange(200, is_whole=True), needs_prefill_body=False)
        pair.close()
        return pair.prefill.is_over

    assert asyncio.run(scenario()) is False
