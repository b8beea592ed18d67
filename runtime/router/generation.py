"""Serves one generation request: both legs, another pair when one fails, decode's answer to the client."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass

from runtime.router.address import Role
from runtime.router.asgi import Receive
from runtime.router.body import BodyError, read_body, with_rendezvous
from runtime.router.delivery import deliver, describe_fault, give_up
from runtime.router.exchange import Exchange, FailureKind
from runtime.router.hang_up import HangUp
from runtime.router.pair import Pair, Verdict, is_decided, judge
from runtime.router.reply import Reply
from runtime.router.request import (
    ClientRequest,
    HungUpError,
    PayloadTooLargeError,
    RequestHead,
    read_payload,
)
from runtime.router.retry import backoff_s
from runtime.router.settings import RouterSettings
from runtime.router.tally import Tally
from runtime.router.workers import Fleet, Worker

log = logging.getLogger(__name__)

MAX_STALE = 2  # one per leg: after the first, the pool of that worker opens new connections


@dataclass(slots=True, kw_only=True)
class Attempts:
    """What earlier pairs of this request have taught."""

    num_failed: int = 0
    num_stale: int = 0
    last_problem: str = ""


class Generation:
    def __init__(self, *, prefill: Fleet, decode: Fleet, settings: RouterSettings, tally: Tally) -> None:
        self._prefill = prefill
        self._decode = decode
        self._settings = settings
        self._tally = tally

    async def serve(self, path: str, head: RequestHead, receive: Receive, reply: Reply) -> None:
        """Answer the request, or fall silent if the client hangs up."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        self._tally.begin()
        try:
            request = await self._read(path, head, receive, reply)
            if request is not None:
                await self._within_limits(request, receive, reply)
        finally:
            self._tally.end(path, reply.status, loop.time() - started_s)

    async def _read(
        self, path: str, head: RequestHead, receive: Receive, reply: Reply
    ) -> ClientRequest | None:
        """The request, or None after it has been refused."""
        max_bytes = self._settings.max_payload_bytes
        try:
            payload = await read_payload(receive, head, max_bytes=max_bytes)
            return ClientRequest(path=path, head=head, body=read_body(path, payload))
        except PayloadTooLargeError:
            await reply.error(413, f"the body is above {max_bytes} bytes", code="payload_too_large")
        except BodyError as error:
            await reply.error(400, str(error), code="invalid_body")
        except HungUpError:
            pass
        return None

    async def _within_limits(self, request: ClientRequest, receive: Receive, reply: Reply) -> None:
        """Run the request until it is answered, its time is up, or the client is gone."""
        hang_up = HangUp(receive)
        timeout_s = self._settings.request_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._answer(request, reply)
        except TimeoutError:
            await reply.error(504, f"no whole answer within {timeout_s:g} s", code="request_timeout")
        except asyncio.CancelledError:
            if not hang_up.has_happened:  # the server's grace is over
                await reply.error(503, "the router is shutting down", code="shutting_down")
                raise
            log.debug("client of %s hung up", request.head.request_id.decode("latin-1"))
        finally:
            hang_up.release()

    async def _answer(self, request: ClientRequest, reply: Reply) -> None:
        attempts = Attempts()
        avoid: set[Worker] = set()
        while True:
            prefill, decode = self._prefill.choose(avoid=avoid), self._decode.choose(avoid=avoid)
            if prefill is None or decode is None:
                await self._refuse(reply, attempts)
                return
            pair = _send(request, prefill, decode)
            try:
                await pair.wait(is_decided)
                verdict, role = judge(pair)
                if verdict is not Verdict.FAIL:
                    await deliver(pair, verdict, role, reply)
                    return
            finally:
                pair.close()
            failed = prefill if role is Role.PREFILL else decode
            if not await self._may_retry(attempts, failed, pair.exchange(role)):
                await give_up(pair.exchange(role), role, reply)
                return
            avoid |= {prefill, decode}

    async def _may_retry(self, attempts: Attempts, worker: Worker, exchange: Exchange) -> bool:
        """Take note of a failed attempt; True, after the delay, if there may be another one."""
        worker.report_failure(exchange.failure)
        problem = describe_fault(worker.label, exchange)
        attempts.last_problem = problem
        if exchange.failure and exchange.failure.kind is FailureKind.STALE and attempts.num_stale < MAX_STALE:
            attempts.num_stale += 1
            return True
        attempts.num_failed += 1
        is_last = attempts.num_failed >= self._settings.retry.max_attempts
        log.warning("%s; %s", problem, "giving up" if is_last else "trying another pair")
        if is_last:
            return False
        self._tally.num_retries[worker.address.role] += 1
        await asyncio.sleep(
            backoff_s(self._settings.retry, num_failed=attempts.num_failed, chance=random.random())
        )
        return True

    async def _refuse(self, reply: Reply, attempts: Attempts) -> None:
        missing = [fleet for fleet in (self._prefill, self._decode) if not fleet.healthy]
        message = " and ".join(
            f"no healthy {fleet.role} instance ({len(fleet.workers)} known)" for fleet in missing
        )
        if attempts.last_problem:
            message += f"; before that: {attempts.last_problem}"
        await reply.error(503, message, code="server_selection_failed")


def _send(request: ClientRequest, prefill: Worker, decode: Worker) -> Pair:
    """Send the request to both workers, with a new room for each sequence."""
    body = request.body
    rooms = [random.getrandbits(63) for _ in range(body.num_sequences or 1)]
    payload = with_rendezvous(
        body, host=prefill.address.host, port=prefill.address.bootstrap_port, rooms=rooms
    )
    rest = b"%bContent-Length: %d\r\n\r\n" % (request.head.passed_on, len(payload))
    path = request.path.encode("ascii")
    pair = Pair(
        prefill=Exchange(
            (prefill.request_head(b"POST", path), rest, payload), keeps_body=body.wants_prompt_logprobs
        ),
        decode=Exchange((decode.request_head(b"POST", path), rest, payload)),
        needs_prefill_body=body.wants_prompt_logprobs,
    )
    prefill.send(pair.prefill)
    decode.send(pair.decode)
    return pair
