"""The workers of each role, and which of them take requests."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Sequence

from runtime.router.address import Role, WorkerAddress
from runtime.router.exchange import Exchange, Failure, FailureKind
from runtime.router.policies import Policy
from runtime.router.pool import ConnectionPool
from runtime.router.standing import Standing, after_refusal

log = logging.getLogger(__name__)


class Worker:
    """One worker: its connections, its standing, its load."""

    def __init__(self, address: WorkerAddress) -> None:
        self.address = address
        self.label = f"{address.role} {address.url}"
        self.pool = self.fresh_pool()
        self.standing = Standing()
        self.num_in_flight = 0
        # By kind of failure; "status" is an answer whose status asks for a retry.
        self.num_failures: Counter[str] = Counter()
        self.wants_poll = asyncio.Event()  # set when a request has found something wrong
        self._host_header = b"Host: " + address.authority.encode("ascii") + b"\r\n"

    def request_head(self, method: bytes, path: bytes) -> bytes:
        """The request line and the Host header."""
        return method + b" " + path + b" HTTP/1.1\r\n" + self._host_header

    def fresh_pool(self) -> ConnectionPool:
        """Unused connections, for a question that must show whether the worker still accepts."""
        return ConnectionPool(host=self.address.host, port=self.address.port, label=self.label)

    def send(self, exchange: Exchange) -> None:
        """Start the exchange and count it until it is over."""
        self.num_in_flight += 1
        exchange.on_end = self._release
        self.pool.send(exchange)

    def report_failure(self, failure: Failure | None) -> None:
        """Take note that a request failed here; None stands for an answer whose status asks for a retry."""
        kind = failure.kind if failure else "status"
        self.num_failures[kind] += 1
        if kind == FailureKind.STALE:
            self.pool.close_idle()
            return
        if failure and kind == FailureKind.REFUSED and self.standing.is_healthy:
            log.warning("%s; it is out until it answers a health check", failure.message)
            self.standing = after_refusal(self.standing)
        if kind in (FailureKind.REFUSED, FailureKind.CLOSED):
            self.wants_poll.set()

    def _release(self) -> None:
        self.num_in_flight -= 1


class Fleet:
    """The workers of one role with the policy that chooses among them."""

    def __init__(self, *, role: Role, workers: Sequence[Worker], policy: Policy) -> None:
        self.role = role
        self.workers = tuple(workers)
        self._policy = policy

    @property
    def healthy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.standing.is_healthy]

    def choose(self, *, avoid: Collection[Worker] = ()) -> Worker | None:
        """One healthy worker, outside `avoid` if there is such a one; None when none is healthy."""
        candidates = self.healthy
        if avoid:
            candidates = [worker for worker in candidates if worker not in avoid] or candidates
        return self._policy.choose(candidates) if candidates else None
