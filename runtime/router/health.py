"""Polls the health of every worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from runtime.router.pool import FetchError, fetch
from runtime.router.settings import HealthSettings
from runtime.router.standing import after_poll
from runtime.router.workers import Worker

log = logging.getLogger(__name__)

# A worker that is out is polled at least this often: with an interval of 60 s a restarted one would idle.
RECOVERY_INTERVAL_S = 1.0
# Two polls that a request asked for are at least this far apart.
MIN_INTERVAL_S = 0.2


async def watch(workers: Iterable[Worker], settings: HealthSettings) -> None:
    """Poll each worker until cancelled."""
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(_watch_one(worker, settings))


async def _watch_one(worker: Worker, settings: HealthSettings) -> None:
    while True:
        worker.wants_poll.clear()
        await poll(worker, settings)
        worker.pool.close_aged()
        interval_s = settings.interval_s
        if not worker.standing.is_healthy:
            interval_s = min(interval_s, RECOVERY_INTERVAL_S)
        await asyncio.sleep(min(interval_s, MIN_INTERVAL_S))
        try:
            async with asyncio.timeout(max(0.0, interval_s - MIN_INTERVAL_S)):
                await worker.wants_poll.wait()
        except TimeoutError:
            pass


async def poll(worker: Worker, settings: HealthSettings) -> None:
    """Ask the worker once and change its standing accordingly."""
    problem = await _problem(worker, settings)
    before = worker.standing
    worker.standing = after_poll(before, is_good=problem is None, settings=settings)
    if worker.standing.is_healthy and not before.is_healthy:
        log.info("%s is in", worker.label)
    elif before.is_healthy and not worker.standing.is_healthy:
        log.warning(
            "%s is out: %s (%d bad health checks in a row)", worker.label, problem, worker.standing.num_bad
        )
    elif problem is not None:
        log.debug("%s: %s", worker.label, problem)


async def _problem(worker: Worker, settings: HealthSettings) -> str | None:
    """What is wrong with the worker, None when it is well."""
    head = worker.request_head(b"GET", settings.endpoint.encode("ascii"))
    try:
        answer = await fetch(
            worker.fresh_pool(), (head, b"Connection: close\r\n\r\n"), timeout_s=settings.timeout_s
        )
    except FetchError as error:
        return str(error)
    return None if 200 <= answer.status < 300 else f"answered {settings.endpoint} with {answer.status}"
