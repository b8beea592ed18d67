"""Exchanges over real sockets, down to what a broken worker may send."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from runtime.router import connection, exchange, pool
from runtime.router.exchange import Exchange, FailureKind
from runtime.router.pool import ConnectionPool, FetchError, fetch

REQUEST = (b"POST /generate HTTP/1.1\r\nHost: a\r\n", b"Content-Length: 2\r\n\r\n", b"{}")

Talk = Callable[[ConnectionPool, Any], Coroutine[Any, Any, None]]


def talk_to(stage: Any, script: Any, talk: Talk) -> Any:
    """Run `talk` with a pool of connections to a worker; returns the worker for a look at what it saw."""

    async def scenario() -> Any:
        worker = stage.scripted_worker(script)
        await worker.start()
        connections = ConnectionPool(host="127.0.0.1", port=worker.port, label="decode")
        try:
            await talk(connections, worker)
        finally:
            connections.close_idle()
            await worker.stop()
        return worker

    return asyncio.run(scenario())


async def run_exchange(connections: ConnectionPool, **fields: Any) -> Exchange:
    sent = Exchange(REQUEST, **fields)
    over = asyncio.Event()
    sent.on_change = lambda: over.set() if sent.is_over else None
    connections.send(sent)
    async with asyncio.timeout(5):
        await over.wait()
    return sent


def test_one_connection_carries_one_exchange_after_another(stage: Any) -> None:
    async def talk(connections: ConnectionPool, worker: Any) -> None:
        for _ in range(3):
            sent = await run_exchange(connections)
            assert (sent.status, sent.content_type, sent.take()) == (200, b"application/json", b'{"a":1}')

    worker = talk_to(stage, stage.answering(200, b'{"a":1}'), talk)
    assert worker.num_connections == 1
    assert [request.body for request in worker.received] == [b"{}"] * 3


def test_exchanges_at_the_same_time_have_connections_of_their_own(stage: Any) -> None:
    async def talk(connections: ConnectionPool, worker: Any) -> None:
        sent = await asyncio.gather(*(run_exchange(connections) for _ in range(5)))
        assert all(each.is_success for each in sent)

    assert talk_to(stage, stage.answering(200), talk).num_connections == 5


def test_connection_that_the_worker_will_close_is_not_used_again(stage: Any) -> None:
    async def script(request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(stage.http_answer(200, extra="Connection: close\r\n"))
        writer.close()

    async def talk(connections: ConnectionPool, worker: Any) -> None:
        assert (await run_exchange(connections)).is_success
        assert (await run_exchange(connections)).is_success

    assert talk_to(stage, script, talk).num_connections == 2


def test_idle_connection_is_not_used_after_its_age(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MAX_IDLE_S", 0.0)

    async def talk(connections: ConnectionPool, worker: Any) -> None:
        assert (await run_exchange(connections)).is_success
        assert (await run_exchange(connections)).is_success

    assert talk_to(stage, stage.answering(200), talk).num_connections == 2


def test_chunked_answer_in_single_bytes_is_put_together(stage: Any) -> None:
    async def script(request: Any, writer: asyncio.StreamWriter) -> None:
        wire = b"HTTP/1.1 100 Continue\r\n\r\n" + stage.event_stream_head
        wire += stage.http_chunk(b"data: 1\n\n") + stage.http_chunk(b"data: 2\n\n") + b"0\r\n\r\n"
        for position in range(len(wire)):
            writer.write(wire[position : position + 1])
            await writer.drain()
            await asyncio.sleep(0)

    async def talk(connections: ConnectionPool, worker: Any) -> None:
        sent = await run_exchange(connections)
        assert (sent.status, sent.is_event_stream, sent.take()) == (200, True, b"data: 1\n\ndata: 2\n\n")

    talk_to(stage, script, talk)


def test_body_without_a_length_ends_with_its_connection(stage: Any) -> None:
    async def script(request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nabc")
        writer.close()

    async def talk(connections: ConnectionPool, worker: Any) -> None:
        sent = await run_exchange(connections)
        assert (sent.is_complete, sent.take()) == (True, b"abc")

    talk_to(stage, script, talk)


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        (b"", FailureKind.CLOSED),
        (b"HTTP/1.1 200 OK\r\nContent-Le", FailureKind.CLOSED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", FailureKind.CLOSED),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", FailureKind.CLOSED),
        (b"SSH-2.0-OpenSSH_9.2\r\n", FailureKind.MALFORMED),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2 * connection.MAX_HEAD_BYTES, FailureKind.MALFORMED),
        (2 * b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", FailureKind.MALFORMED),
    ],
)
def test_answer_that_is_cut_or_no_answer_fails(stage: Any, wire: bytes, kind: FailureKind) -> None:
    async def script(request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(wire)
        await writer.drain()
        writer.close()

    async def talk(connections: ConnectionPool, worker: Any) -> None:
        sent = await run_exchange(connections)
        assert sent.failure is not None
        assert sent.failure.kind is kind

    talk_to(stage, script, talk)


def test_answer_above_the_bound_fails(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_ANSWER_BYTES", 1000)

    async def talk(connections: ConnectionPool, worker: Any) -> None:
        sent = await run_exchange(connections)
        assert sent.failure is not None
        assert "above 1000 bytes" in sent.failure.message

    talk_to(stage, stage.answering(200, b"x" * 10_000_000), talk)


def test_nobody_listening_is_a_refusal() -> None:
    async def scenario() -> Exchange:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        return await run_exchange(ConnectionPool(host="127.0.0.1", port=port, label="decode"))

    failure = asyncio.run(scenario()).failure
    assert failure is not None
    assert failure.kind is FailureKind.REFUSED
    assert "Connection refused" in failure.message


def test_kept_alive_connection_that_dies_under_a_request_is_stale(stage: Any) -> None:
    async def script(request: Any, writer: asyncio.StreamWriter) -> None:
        if request.is_first_on_connection:
            writer.write(stage.http_answer(200))
        else:
            writer.close()

    async def talk(connections: ConnectionPool, worker: Any) -> None:
        assert (await run_exchange(connections)).is_success
        failure = (await run_exchange(connections)).failure
        assert failure is not None
        assert failure.kind is FailureKind.STALE

    talk_to(stage, script, talk)


@pytest.mark.parametrize("delay_s", [0.0, 0.05])
def test_cancelling_closes_the_connection_and_counts_as_the_end(stage: Any, delay_s: float) -> None:
    async def talk(connections: ConnectionPool, worker: Any) -> None:
        ended: list[bool] = []
        sent = Exchange(REQUEST)
        sent.on_end = lambda: ended.append(True)
        connections.send(sent)
        await asyncio.sleep(delay_s)
        sent.cancel()
        sent.cancel()
        assert ended == [True]
        if worker.received:
            async with asyncio.timeout(5):
                await worker.hung_up.wait()

    talk_to(stage, stage.silent, talk)


def test_flood_of_events_is_not_read_before_it_is_taken(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "HIGH_WATER_BYTES", 100_000)
    num_events, event = 400, b"data: " + b"x" * 100_000 + b"\n\n"

    async def script(request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(stage.event_stream_head)
        for _ in range(num_events):
            writer.write(stage.http_chunk(event))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async def talk(connections: ConnectionPool, worker: Any) -> None:
        sent = Exchange(REQUEST)
        connections.send(sent)
        await asyncio.sleep(0.3)
        assert 100_000 < sent.buffered_bytes < 1_000_000
        num_bytes = 0
        async with asyncio.timeout(20):
            while not (sent.is_complete and not sent.chunks):
                num_bytes += len(sent.take())
                await asyncio.sleep(0)
        assert num_bytes == num_events * len(event)

    talk_to(stage, script, talk)


def test_long_error_is_read_whole_even_if_it_calls_itself_a_stream(stage: Any) -> None:
    async def talk(connections: ConnectionPool, worker: Any) -> None:
        sent = await run_exchange(connections)
        assert (sent.status, len(sent.take())) == (500, 5_000_000)

    talk_to(stage, stage.answering(500, b"x" * 5_000_000, content_type="text/event-stream"), talk)


def test_unwanted_body_of_a_success_is_dropped_but_that_of_an_error_kept(stage: Any) -> None:
    async def talk(connections: ConnectionPool, worker: Any) -> None:
        assert (await run_exchange(connections, keeps_body=False)).take() == b""
        worker.script = stage.answering(500, b"why")
        assert (await run_exchange(connections, keeps_body=False)).take() == b"why"

    talk_to(stage, stage.answering(200, b"x"), talk)


def test_fetch_gives_up_after_its_time(stage: Any) -> None:
    async def talk(connections: ConnectionPool, worker: Any) -> None:
        with pytest.raises(FetchError, match=r"no answer in 0\.05 s"):
            await fetch(connections, REQUEST, timeout_s=0.05)
        async with asyncio.timeout(5):
            await worker.hung_up.wait()

    talk_to(stage, stage.silent, talk)
