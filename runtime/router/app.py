"""The ASGI application: routes, and the boundary that turns an unforeseen error into an answer."""

from __future__ import annotations

import logging

from runtime.router.address import Role
from runtime.router.asgi import Receive, Scope, Send
from runtime.router.control import Control
from runtime.router.generation import Generation
from runtime.router.policies import make_policy
from runtime.router.reply import Reply
from runtime.router.request import GENERATION_ROUTES, read_head
from runtime.router.settings import RouterSettings
from runtime.router.tally import Tally
from runtime.router.workers import Fleet, Worker

log = logging.getLogger(__name__)


class RouterApp:
    """Made on the event loop that serves it. Raw ASGI: a framework would double the cost of a request."""

    def __init__(self, settings: RouterSettings) -> None:
        self.settings = settings
        prefill = Fleet(
            role=Role.PREFILL,
            workers=[Worker(address) for address in settings.prefill],
            policy=make_policy(settings.prefill_policy),
        )
        decode = Fleet(
            role=Role.DECODE,
            workers=[Worker(address) for address in settings.decode],
            policy=make_policy(settings.decode_policy),
        )
        self.workers = prefill.workers + decode.workers
        tally = Tally()
        self._generation = Generation(prefill=prefill, decode=decode, settings=settings, tally=tally)
        self._control = Control(prefill=prefill, decode=decode, tally=tally)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        method, path = scope["method"], scope["path"]
        head = read_head(scope)
        reply = Reply(send, head.request_id)
        try:
            if method == "POST" and path in GENERATION_ROUTES:
                await self._generation.serve(path, head, receive, reply)
            else:
                await self._control.serve(method, path, head, reply)
        except Exception:  # the request boundary: one request's fault must not be another's
            log.exception("%s %s failed", method, path)
            await reply.error(500, "internal error of the router", code="internal_error")
