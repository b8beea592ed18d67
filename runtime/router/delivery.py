"""Gives the client what a pair of workers has answered."""

from __future__ import annotations

from runtime.router.address import Role
from runtime.router.exchange import Exchange
from runtime.router.logprobs import merge_prompt_logprobs
from runtime.router.pair import Pair, Verdict, find_fault, is_stream_due
from runtime.router.reply import Reply


async def deliver(pair: Pair, verdict: Verdict, role: Role, reply: Reply) -> None:
    """Give the client what the verdict says; it is not `WAIT` or `FAIL`."""
    exchange = pair.exchange(role)
    if verdict is Verdict.STREAM:
        await reply.start_stream(exchange.status or 200, exchange.content_type)
        await _relay(pair, reply)
        return
    body = exchange.take()
    if verdict is Verdict.ANSWER and pair.needs_prefill_body:
        try:
            body = merge_prompt_logprobs(pair.prefill.take(), body)
        except ValueError as error:
            await reply.error(502, f"cannot join the prompt's logprobs: {error}", code="logprob_merge_failed")
            return
    await reply.whole(
        exchange.status or 200, body, content_type=exchange.content_type, retry_after=exchange.retry_after
    )


async def _relay(pair: Pair, reply: Reply) -> None:
    """Pass decode's event stream on until it ends or a side fails.

    Prefill's failure ends it too: decode may have sent a first event before it had any KV and would wait on.
    """
    decode = pair.decode
    while True:
        await pair.wait(is_stream_due)
        if decode.chunks or decode.is_complete:
            is_last = decode.is_complete
            await reply.chunk(decode.take(), is_last=is_last)
            if is_last:
                return
        elif (fault := find_fault(pair)) is not None:
            role = fault[1]
            problem = describe_fault(role, pair.exchange(role))
            await reply.error(502, f"the stream broke off: {problem}", code=f"{role}_server_error")
            return


async def give_up(exchange: Exchange, role: Role, reply: Reply) -> None:
    """Tell the client of the last failure: the worker's own words if it had any."""
    if exchange.failure is not None:
        await reply.error(502, exchange.failure.message, code=f"{role}_server_error")
    else:
        await reply.whole(
            exchange.status or 502,
            exchange.take(),
            content_type=exchange.content_type,
            retry_after=exchange.retry_after,
        )


def describe_fault(who: str, exchange: Exchange) -> str:
    """What went wrong in an exchange that failed."""
    return exchange.failure.message if exchange.failure else f"{who} answered {exchange.status}"
