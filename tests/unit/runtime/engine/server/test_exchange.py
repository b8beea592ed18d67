"""The crossing from engine threads to the event loop."""

from __future__ import annotations

import asyncio
import threading

from runtime.engine.server.exchange import LoopExchange


def test_everything_arrives_once_and_in_the_order_of_its_thread():
    num_threads, num_items = 4, 5_000

    async def receive() -> dict[int, list[int]]:
        exchange = LoopExchange[tuple[int, int]](asyncio.get_running_loop())
        received: dict[int, list[int]] = {index: [] for index in range(num_threads)}
        complete = asyncio.Event()

        def deliver(item: tuple[int, int]) -> None:
            received[item[0]].append(item[1])
            if sum(map(len, received.values())) == num_threads * num_items:
                complete.set()

        def post(index: int) -> None:
            for number in range(num_items):
                exchange.post(deliver, (index, number))

        threads = [threading.Thread(target=post, args=(index,)) for index in range(num_threads)]
        for thread in threads:
            thread.start()
        await asyncio.wait_for(complete.wait(), 20)
        return received

    received = asyncio.run(receive())
    assert received == {index: list(range(num_items)) for index in range(num_threads)}


def test_a_closed_loop_is_no_error_for_the_engine():
    loop = asyncio.new_event_loop()
    exchange = LoopExchange[int](loop)
    loop.close()
    exchange.post(print, 1)
