"""Every route but generation: health of the router, its workers, and questions passed on to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import orjson
from prometheus_client import CONTENT_TYPE_LATEST

from runtime.router.pool import Answer, FetchError, fetch
from runtime.router.reply import JSON, Reply
from runtime.router.request import GENERATION_ROUTES, RequestHead
from runtime.router.tally import Tally, render_metrics
from runtime.router.workers import Fleet, Worker

ASK_TIMEOUT_S = 10.0
PASSED_ON_PATHS = ("/v1/models", "/model_info", "/get_model_info", "/server_info", "/get_server_info")

Endpoint = Callable[[RequestHead, Reply], Awaitable[None]]


class Control:
    def __init__(self, *, prefill: Fleet, decode: Fleet, tally: Tally) -> None:
        self._fleets = (prefill, decode)
        self._tally = tally
        self._endpoints: dict[tuple[str, str], Endpoint] = {
            ("GET", "/health"): self._health,
            ("GET", "/readiness"): self._readiness,
            ("GET", "/workers"): self._workers,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/flush_cache"): self._flush_cache,
            ("POST", "/flush_cache"): self._flush_cache,
        }
        for path in PASSED_ON_PATHS:
            self._endpoints["GET", path] = self._passed_on(path)

    async def serve(self, method: str, path: str, head: RequestHead, reply: Reply) -> None:
        endpoint = self._endpoints.get((method, path))
        if endpoint is not None:
            await endpoint(head, reply)
        elif path in GENERATION_ROUTES or any(known == path for _, known in self._endpoints):
            await reply.error(405, f"{method} is not allowed on {path}", code="method_not_allowed")
        else:
            await reply.error(404, f"no route {method} {path}", code="not_found")

    async def _health(self, head: RequestHead, reply: Reply) -> None:
        await reply.whole(200, b"OK", content_type=b"text/plain")

    async def _readiness(self, head: RequestHead, reply: Reply) -> None:
        num_healthy = {str(fleet.role): len(fleet.healthy) for fleet in self._fleets}
        is_ready = all(num_healthy.values())
        state = {"status": "ready" if is_ready else "not ready", "healthy_workers": num_healthy}
        await reply.whole(200 if is_ready else 503, orjson.dumps(state))

    async def _workers(self, head: RequestHead, reply: Reply) -> None:
        workers = [_describe(worker) for fleet in self._fleets for worker in fleet.workers]
        counts = {f"{fleet.role}_count": len(fleet.workers) for fleet in self._fleets}
        listing = {"workers": workers, "total": len(workers), "stats": counts | {"regular_count": 0}}
        await reply.whole(200, orjson.dumps(listing))

    async def _metrics(self, head: RequestHead, reply: Reply) -> None:
        text = render_metrics(self._tally, self._fleets)
        await reply.whole(200, text, content_type=CONTENT_TYPE_LATEST.encode("ascii"))

    async def _flush_cache(self, head: RequestHead, reply: Reply) -> None:
        """Flush all workers, also those that are out: one that comes back must not have its old cache."""
        workers = [worker for fleet in self._fleets for worker in fleet.workers]
        problems = await asyncio.gather(*(_flush(worker, head) for worker in workers))
        failed = [problem for problem in problems if problem is not None]
        if failed:
            await reply.error(502, "not flushed: " + "; ".join(failed), code="flush_failed")
        else:
            await reply.whole(200, orjson.dumps({"status": "success", "workers_flushed": len(workers)}))

    def _passed_on(self, path: str) -> Endpoint:
        """Ask one healthy worker: of prefill, as sglang-router does, and of decode if there is none."""

        async def endpoint(head: RequestHead, reply: Reply) -> None:
            healthy = [worker for fleet in self._fleets for worker in fleet.healthy]
            if not healthy:
                await reply.error(503, "no healthy instance of either role", code="server_selection_failed")
                return
            try:
                answer = await _ask(healthy[0], b"GET", path, head)
            except FetchError as error:
                await reply.error(502, f"{healthy[0].label}: {error}", code="worker_error")
            else:
                await reply.whole(answer.status, answer.body, content_type=answer.content_type or JSON)

        return endpoint


def _describe(worker: Worker) -> dict[str, object]:
    address = worker.address
    return {
        "id": f"{address.role}@{address.url}",
        "url": address.url,
        "worker_type": str(address.role),
        "is_healthy": worker.standing.is_healthy,
        "load": worker.num_in_flight,
        "bootstrap_port": address.bootstrap_port,
    }


async def _flush(worker: Worker, head: RequestHead) -> str | None:
    """The problem, None when it went well."""
    try:
        answer = await _ask(worker, b"POST", "/flush_cache", head)
    except FetchError as error:
        return f"{worker.label}: {error}"
    return None if 200 <= answer.status < 300 else f"{worker.label} answered {answer.status}"


async def _ask(worker: Worker, method: bytes, path: str, head: RequestHead) -> Answer:
    """One question on a connection of its own: a kept-alive one may be stale, and these are not retried."""
    request = worker.request_head(method, path.encode("ascii")) + head.passed_on
    length = b"Content-Length: 0\r\n" if method == b"POST" else b""
    return await fetch(
        worker.fresh_pool(), (request + length + b"Connection: close\r\n\r\n",), timeout_s=ASK_TIMEOUT_S
    )
