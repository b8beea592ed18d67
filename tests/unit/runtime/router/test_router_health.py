from __future__ import annotations

import asyncio
from typing import Any

from runtime.router.health import watch


def test_dead_worker_leaves_and_comes_back_by_itself(stage: Any) -> None:
    is_well = True

    async def script(request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(stage.http_answer(200 if is_well else 503))

    async def scenario() -> None:
        nonlocal is_well
        flags = ["--health-check-interval-secs", "0.05", "--health-failure-threshold", "2"]
        async with stage.open_bench([script], [script], *flags, is_polled=False) as bench:
            workers = bench.app.workers
            watching = asyncio.ensure_future(watch(workers, bench.app.settings.health))
            async with asyncio.timeout(10):
                for is_well in (True, False, True):
                    while any(worker.standing.is_healthy is not is_well for worker in workers):
                        await asyncio.sleep(0.01)
            watching.cancel()

    asyncio.run(scenario())


def test_worker_that_failed_a_request_is_polled_without_waiting_for_the_interval(stage: Any) -> None:
    async def scenario() -> None:
        flags = ["--health-check-interval-secs", "3600"]
        async with stage.open_bench([stage.answering(200)], [stage.answering(200)], *flags) as bench:
            worker = bench.app.workers[0]
            watching = asyncio.ensure_future(watch([worker], bench.app.settings.health))
            async with asyncio.timeout(10):
                while worker.standing.num_good < 2:  # the first of them was the bench's own
                    await asyncio.sleep(0.01)
                worker.wants_poll.set()
                while worker.standing.num_good < 3:
                    await asyncio.sleep(0.01)
            watching.cancel()

    asyncio.run(scenario())


def test_silent_worker_is_ill(stage: Any) -> None:
    async def silent(request: Any, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)

    async def scenario() -> None:
        flags = ["--health-check-timeout-secs", "0.05"]
        async with stage.open_bench([silent], [stage.answering(200)], *flags) as bench:
            assert [worker.standing.is_healthy for worker in bench.app.workers] == [False, True]

    asyncio.run(scenario())
