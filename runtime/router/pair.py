"""The two exchanges of one attempt, and what their state means for the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from runtime.router.address import Role
from runtime.router.exchange import Exchange
from runtime.router.retry import asks_for_retry

PREFILL_GRACE_S = 5.0


class Verdict(Enum):
    """What to do now."""

    WAIT = "wait"
    ANSWER = "answer"  # decode's answer is whole
    STREAM = "stream"  # the first bytes of decode's event stream are here
    REJECT = "reject"  # one side says that the request is wrong: its answer is the client's
    FAIL = "fail"  # one side failed: another pair may do better


class Pair:
    """One request sent to a prefill and a decode worker at the same time."""

    __slots__ = ("_is_ready", "_waiter", "decode", "needs_prefill_body", "prefill")

    def __init__(self, *, prefill: Exchange, decode: Exchange, needs_prefill_body: bool) -> None:
        self.prefill = prefill
        self.decode = decode
        self.needs_prefill_body = needs_prefill_body
        self._waiter: asyncio.Future[None] | None = None
        self._is_ready: Callable[[Pair], bool] = is_decided
        prefill.on_change = decode.on_change = self._wake

    def exchange(self, role: Role) -> Exchange:
        return self.prefill if role is Role.PREFILL else self.decode

    async def wait(self, is_ready: Callable[[Pair], bool]) -> None:
        """Return when `is_ready`; the network callbacks ask it, so a coroutine does not wake per packet."""
        if is_ready(self):
            return
        self._is_ready = is_ready
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def close(self) -> None:
        """End what is not over. A leg left alone would wait for its twin until the KV time-out.

        When decode has answered, prefill's answer is about to come and its connection is worth keeping.
        """
        self.decode.cancel()
        if self.prefill.is_over:
            return
        if self.decode.is_complete and self.decode.is_success:
            self.prefill.keeps_body = False
            asyncio.get_running_loop().call_later(PREFILL_GRACE_S, self.prefill.cancel)
        else:
            self.prefill.cancel()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done() and self._is_ready(self):
            waiter.set_result(None)


def judge(pair: Pair) -> tuple[Verdict, Role]:
    """Decide from the state of both exchanges; the role is the side whose answer or fault it is.

    A whole answer of decode stands even if prefill fails after it: the KV had arrived. An answered error
    waits for its body, because the client gets it when no attempt is left.
    """
    decode = pair.decode
    has_prefill_part = not pair.needs_prefill_body or (pair.prefill.is_complete and pair.prefill.is_success)
    if decode.is_complete and decode.is_success and has_prefill_part:
        return Verdict.ANSWER, Role.DECODE
    fault = find_fault(pair)
    if fault is not None:
        return fault
    if decode.is_event_stream and decode.chunks and decode.is_success:
        return Verdict.STREAM, Role.DECODE
    return Verdict.WAIT, Role.DECODE


def find_fault(pair: Pair) -> tuple[Verdict, Role] | None:
    """The side that rejected the request or failed it, None while both are well."""
    for role, exchange in ((Role.PREFILL, pair.prefill), (Role.DECODE, pair.decode)):
        if exchange.failure is not None:
            return Verdict.FAIL, role
        if exchange.is_complete and not exchange.is_success:
            is_failure = exchange.status is None or asks_for_retry(exchange.status)
            return Verdict.FAIL if is_failure else Verdict.REJECT, role
    return None


def is_decided(pair: Pair) -> bool:
    return judge(pair)[0] is not Verdict.WAIT


def is_stream_due(pair: Pair) -> bool:
    """There is something to pass on, or an end to tell."""
    return bool(pair.decode.chunks) or pair.decode.is_complete or find_fault(pair) is not None
