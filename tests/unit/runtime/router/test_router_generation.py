"""Whole requests through the application, with workers that answer, fail, stall and die."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

OK_BODY = b'{"text":"Paris"}'

Talk = Callable[[Any], Awaitable[None]]


@pytest.fixture
def run(stage: Any) -> Callable[..., Any]:
    """`run(prefill_scripts, decode_scripts, *flags, talk=...)` returns the bench after the talk."""

    def run_talk(prefill: list[Any], decode: list[Any], *flags: str, talk: Talk) -> Any:
        async def scenario() -> Any:
            async with stage.open_bench(prefill, decode, *flags) as bench, asyncio.timeout(20):
                await talk(bench)
            return bench

        return asyncio.run(scenario())

    return run_talk


def num_in_flight(bench: Any) -> list[int]:
    return [worker.num_in_flight for worker in bench.app.workers]


def failing_first(stage: Any, status: int) -> Any:
    """Fails its first request and answers the others."""
    seen: list[Any] = []

    async def script(request: Any, writer: asyncio.StreamWriter) -> None:
        if request.path == "/health":
            writer.write(stage.http_answer(200))
            return
        seen.append(request)
        writer.write(stage.http_answer(status if len(seen) == 1 else 200, OK_BODY))

    return script


def streaming(
    stage: Any, *events: bytes, end: bytes = b"0\r\n\r\n", pause: asyncio.Event | None = None
) -> Any:
    """Sends the events, waits for `pause` if there is one, then writes `end` and closes if that is empty."""

    async def script(request: Any, writer: asyncio.StreamWriter) -> None:
        if request.path == "/health":
            writer.write(stage.http_answer(200))
            return
        writer.write(stage.event_stream_head)
        for event in events:
            writer.write(stage.http_chunk(event))
        await writer.drain()
        if pause is not None:
            await pause.wait()
        writer.write(end)
        if not end:
            writer.close()

    return script


# The normal case


def test_both_workers_get_the_same_body_and_the_client_gets_decodes_answer(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        call = await bench.post("/generate", {"text": "a"})
        assert (call.status, call.reply_body, call.is_complete) == (200, OK_BODY, True)
        assert call.reply_headers[b"content-type"] == b"application/json"
        assert call.reply_headers[b"x-request-id"].startswith(b"gnt-")

    bench = run([stage.answering(200, b"{}")], [stage.answering(200, OK_BODY)], talk=talk)
    (to_prefill,), (to_decode,) = bench.prefill[0].received, bench.decode[0].received
    assert to_prefill.body == to_decode.body
    sent = to_decode.json()
    assert (sent["text"], sent["bootstrap_host"], sent["bootstrap_port"]) == ("a", "127.0.0.1", 8998)
    assert 0 <= sent["bootstrap_room"] < 2**63
    assert to_prefill.headers["host"] == f"127.0.0.1:{bench.prefill[0].port}"


def test_every_request_has_its_own_room(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        for _ in range(20):
            await bench.post("/generate", {"text": ["a", "b"]})

    bench = run([stage.answering(200)], [stage.answering(200)], talk=talk)
    rooms = [room for request in bench.decode[0].received for room in request.json()["bootstrap_room"]]
    assert len(set(rooms)) == 40


def test_named_headers_are_passed_on_and_others_are_not(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        headers = [
            (b"authorization", b"Bearer k"),
            (b"x-request-id", b"mine"),
            (b"traceparent", b"00-1"),
            (b"cookie", b"secret"),
            (b"content-type", b"application/json; charset=utf-8"),
        ]
        call = await bench.post("/v1/chat/completions", {"messages": []}, headers=headers)
        assert call.reply_headers[b"x-request-id"] == b"mine"

    bench = run([stage.answering(200)], [stage.answering(200)], talk=talk)
    for worker in (*bench.prefill, *bench.decode):
        headers = worker.received[0].headers
        assert headers["authorization"] == "Bearer k"
        assert headers["x-request-id"] == "mine"
        assert headers["traceparent"] == "00-1"
        assert headers["content-type"] == "application/json; charset=utf-8"
        assert "cookie" not in headers


def test_stream_is_passed_on_before_it_ends_and_before_prefill_answers(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        call = bench.call("/generate", {"text": "a", "stream": True})
        running = asyncio.ensure_future(call.run())
        await call.first_byte.wait()
        assert call.reply_headers[b"content-type"] == b"text/event-stream"
        assert call.reply_body == b"data: 1\n\n"
        assert not call.is_complete
        pause.set()
        await running
        assert call.is_complete

    pause = asyncio.Event()
    run([stage.silent], [streaming(stage, b"data: 1\n\n", pause=pause)], talk=talk)


def test_prompt_logprobs_of_prefill_reach_the_client(stage: Any, run: Any) -> None:
    def part(*values: float) -> bytes:
        return json.dumps({"text": "x", "meta_info": {"input_token_logprobs": list(values)}}).encode()

    async def talk(bench: Any) -> None:
        call = await bench.post("/generate", {"text": "a", "return_logprob": True})
        assert call.json()["meta_info"]["input_token_logprobs"] == [-1.0, -2.0, -3.0]

    run([stage.answering(200, part(-1.0, -2.0))], [stage.answering(200, part(-3.0))], talk=talk)


def test_prefill_that_still_answers_when_decode_is_done_keeps_its_connection(stage: Any, run: Any) -> None:
    async def slow(request: Any, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0 if request.path == "/health" else 0.1)
        writer.write(stage.http_answer(200))

    async def talk(bench: Any) -> None:
        assert (await bench.post("/generate", {"text": "a"})).status == 200
        assert num_in_flight(bench) == [1, 0]
        while bench.app.workers[0].num_in_flight:
            await asyncio.sleep(0.01)
        assert (await bench.post("/generate", {"text": "a"})).status == 200

    bench = run([slow], [stage.answering(200)], talk=talk)
    assert not bench.prefill[0].hung_up.is_set()
    assert bench.prefill[0].num_connections == 2  # one of them was the health check


# Failures before the first byte


@pytest.mark.parametrize("status", [500, 503, 429, 408])
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_busy_or_broken_worker_is_replaced_with_a_new_room(
    stage: Any, run: Any, role: str, status: int
) -> None:
    async def waiting_for_kv(request: Any, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0 if request.path == "/health" else 0.1)
        writer.write(stage.http_answer(200, OK_BODY))

    scripts = {"prefill": [stage.answering(200)], "decode": [waiting_for_kv]}
    scripts[role] = [failing_first(stage, status)]

    async def talk(bench: Any) -> None:
        call = await bench.post("/generate", {"text": "a"})
        assert (call.status, call.reply_body) == (200, OK_BODY)
        while any(num_in_flight(bench)):  # prefill may still be answering
            await asyncio.sleep(0.005)

    bench = run(scripts["prefill"], scripts["decode"], talk=talk)
    (failed,) = bench.prefill if role == "prefill" else bench.decode
    assert len({request.json()["bootstrap_room"] for request in failed.received}) == 2


def test_other_pair_is_preferred_after_a_failure(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        for _ in range(6):
            assert (await bench.post("/generate", {"text": "a"})).status == 200

    decode = [stage.answering(500), stage.answering(200)]
    bench = run([stage.answering(200)], decode, "--retry-max-retries", "2", talk=talk)
    assert len(bench.decode[1].received) == 6


def test_silent_twin_is_cancelled_when_prefill_fails(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        call = await bench.post("/generate", {"text": "a"})
        assert (call.status, call.reply_body) == (503, b'{"error":1}')
        await bench.decode[0].hung_up.wait()
        assert num_in_flight(bench) == [0, 0]

    bench = run([stage.answering(503, b'{"error":1}')], [stage.silent], "--retry-max-retries", "3", talk=talk)
    assert len(bench.prefill[0].received) == 3


def test_silent_twin_is_cancelled_when_decode_fails(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        call = await bench.post("/generate", {"text": "a"})
        assert call.status == 500
        await bench.prefill[0].hung_up.wait()

    run([stage.silent], [stage.answering(500)], "--disable-retries", talk=talk)


def test_prefill_that_fails_after_decodes_head_is_retried(stage: Any, run: Any) -> None:
    """Decode's response head says nothing yet: SGLang sends it before it has the KV."""
    has_head = asyncio.Event()

    async def decode(request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(stage.http_answer(200) if request.path == "/health" else stage.event_stream_head)
        if request.path != "/health":
            has_head.set()
            await asyncio.sleep(3600)

    async def prefill(request: Any, writer: asyncio.StreamWriter) -> None:
        if request.path != "/health":
            await has_head.wait()
            has_head.clear()
            await asyncio.sleep(0.02)
        writer.write(stage.http_answer(200 if request.path == "/health" else 503))

    async def talk(bench: Any) -> None:
        call = await bench.post("/generate", {"text": "a", "stream": True})
        assert call.status == 503
        assert len(bench.decode[0].received) == 2

    run([prefill], [decode], "--retry-max-retries", "2", talk=talk)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_connection_that_dies_is_an_error_that_names_the_worker(stage: Any, run: Any, role: str) -> None:
    async def dying(request: Any, writer: asyncio.StreamWriter) -> None:
        if request.path == "/health":
            writer.write(stage.http_answer(200))
        else:
            writer.close()

    scripts = {"prefill": [stage.silent], "decode": [stage.silent]} | {role: [dying]}

    async def talk(bench: Any) -> None:
        call = await bench.post("/generate", {"text": "a"})
        assert call.status == 502
        error = call.json()["error"]
        assert error["code"] == f"{role}_server_error"
        assert f"{role} http://127.0.0.1" in error["message"]

    run(scripts["prefill"], scripts["decode"], "--retry-max-retries", "2", talk=talk)


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("status", [400, 404, 422])
def test_fault_of_the_client_is_passed_through_once_and_charges_nobody(
    stage: Any, run: Any, role: str, status: int
) -> None:
    body = b'{"error":{"message":"too long"}}'
    scripts = {"prefill": [stage.silent], "decode": [stage.silent]} | {role: [stage.answering(status, body)]}

    async def talk(bench: Any) -> None:
        for _ in range(20):
            call = await bench.post("/generate", {"text": "a"})
            assert (call.status, call.reply_body) == (status, body)
        assert all(worker.standing.is_healthy for worker in bench.app.workers)
        assert all(not worker.num_failures for worker in bench.app.workers)

    bench = run(scripts["prefill"], scripts["decode"], talk=talk)
    (rejecting,) = bench.prefill if role == "prefill" else bench.decode
    assert len(rejecting.received) == 20


def test_refused_connection_takes_a_worker_out_until_it_is_polled(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        port = bench.decode[0].port
        await bench.decode[0].stop()
        for _ in range(4):
            assert (await bench.post("/generate", {"text": "a"})).status == 200
        assert [worker.standing.is_healthy for worker in bench.app.workers] == [True, False, True]
        assert bench.app.workers[1].num_failures == {"refused": 1}
        assert bench.app.workers[1].wants_poll.is_set()
        revived = stage.scripted_worker(stage.answering(200))
        revived._server = await asyncio.start_server(revived._serve, "127.0.0.1", port)
        await bench.poll()
        assert bench.app.workers[1].standing.is_healthy
        await revived.stop()

    run([stage.answering(200)], [stage.answering(200), stage.answering(200)], talk=talk)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_missing_role_is_named(stage: Any, run: Any, role: str) -> None:
    async def talk(bench: Any) -> None:
        await getattr(bench, role)[0].stop()
        call = await bench.post("/generate", {"text": "a"})
        assert call.status == 503
        message = call.json()["error"]["message"]
        assert f"no healthy {role} instance (1 known)" in message
        assert "Connection refused" in message

    run([stage.answering(200)], [stage.answering(200)], talk=talk)


def test_stale_connection_costs_no_attempt(stage: Any, run: Any) -> None:
    async def script(request: Any, writer: asyncio.StreamWriter) -> None:
        if request.is_first_on_connection:
            writer.write(stage.http_answer(200, OK_BODY))
        else:
            writer.close()

    async def talk(bench: Any) -> None:
        for _ in range(3):
            assert (await bench.post("/generate", {"text": "a"})).status == 200

    run([stage.answering(200)], [script], "--disable-retries", talk=talk)


# Failures after the first byte, and the client


def test_stream_that_breaks_ends_with_an_error_event(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        call = await bench.post("/generate", {"text": "a", "stream": True})
        assert call.status == 200
        first, last = call.reply_body.decode().strip().split("\n\n")
        assert first == "data: 1"
        error = json.loads(last.removeprefix("data: "))["error"]
        assert error["code"] == "decode_server_error"
        assert call.is_complete
        assert num_in_flight(bench) == [0, 0]

    bench = run([stage.silent], [streaming(stage, b"data: 1\n\n", end=b"")], talk=talk)
    assert len(bench.decode[0].received) == 1


def test_stream_that_breaks_inside_an_event_is_cut_without_an_end(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        call = await bench.post("/generate", {"text": "a", "stream": True})
        assert call.reply_body == b"data: 1"
        assert not call.is_complete

    run([stage.silent], [streaming(stage, b"data: 1", end=b"")], talk=talk)


def test_stream_ends_with_an_error_when_prefill_fails(stage: Any, run: Any) -> None:
    started = asyncio.Event()

    async def prefill(request: Any, writer: asyncio.StreamWriter) -> None:
        if request.path != "/health":
            await started.wait()
        writer.write(stage.http_answer(200 if request.path == "/health" else 500))

    async def talk(bench: Any) -> None:
        call = bench.call("/generate", {"text": "a", "stream": True})
        running = asyncio.ensure_future(call.run())
        await call.first_byte.wait()
        started.set()
        await running
        assert b"prefill answered 500" in call.reply_body
        await bench.decode[0].hung_up.wait()

    run([prefill], [streaming(stage, b"data: 1\n\n", pause=asyncio.Event())], talk=talk)


@pytest.mark.parametrize("is_streaming", [False, True])
def test_client_that_hangs_up_closes_both_legs(stage: Any, run: Any, is_streaming: bool) -> None:
    decode = streaming(stage, b"data: 1\n\n", pause=asyncio.Event()) if is_streaming else stage.silent

    async def talk(bench: Any) -> None:
        call = bench.call("/generate", {"text": "a", "stream": is_streaming})
        running = asyncio.ensure_future(call.run())
        if is_streaming:
            await call.first_byte.wait()
        while not (bench.prefill[0].received and bench.decode[0].received):
            await asyncio.sleep(0.005)
        call.hang_up()
        await running
        await bench.prefill[0].hung_up.wait()
        await bench.decode[0].hung_up.wait()
        assert num_in_flight(bench) == [0, 0]
        assert b'status="499"' in (await bench.get("/metrics")).reply_body or is_streaming

    run([stage.silent], [decode], talk=talk)


def test_client_that_hangs_up_during_the_backoff_ends_the_request(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        call = bench.call("/generate", {"text": "a"})
        running = asyncio.ensure_future(call.run())
        while not bench.decode[0].received:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        call.hang_up()
        await running
        assert call.messages == []

    run([stage.silent], [stage.answering(500)], "--retry-initial-backoff-ms", "60000", talk=talk)


def test_time_out_is_an_error_and_closes_both_legs(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        call = await bench.post("/generate", {"text": "a"})
        assert (call.status, call.json()["error"]["code"]) == (504, "request_timeout")
        await bench.prefill[0].hung_up.wait()
        await bench.decode[0].hung_up.wait()

    run([stage.silent], [stage.silent], "--request-timeout-secs", "0.1", talk=talk)


def test_slow_client_holds_the_worker_back(stage: Any, run: Any) -> None:
    event = b"data: " + b"x" * 65536 + b"\n\n"
    num_written: list[int] = []

    async def decode(request: Any, writer: asyncio.StreamWriter) -> None:
        if request.path == "/health":
            writer.write(stage.http_answer(200))
            return
        writer.write(stage.event_stream_head)
        for index in range(500):
            writer.write(stage.http_chunk(event))
            await writer.drain()
            num_written.append(index)
        writer.write(b"0\r\n\r\n")

    async def talk(bench: Any) -> None:
        gate = asyncio.Event()
        call = bench.call("/generate", {"text": "a", "stream": True}, gate=gate)
        running = asyncio.ensure_future(call.run())
        await call.first_byte.wait()
        await asyncio.sleep(0.3)
        assert len(num_written) < 400
        gate.set()
        await running
        assert len(call.reply_body) == 500 * len(event)

    run([stage.answering(200)], [decode], talk=talk)


# The client's own faults


def test_body_above_the_bound_is_refused_and_reaches_no_worker(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        call = await bench.post("/generate", {"text": "a" * 200})
        assert (call.status, call.json()["error"]["type"]) == (413, "invalid_request_error")
        assert call.reply_headers[b"connection"] == b"close"

    bench = run([stage.answering(200)], [stage.answering(200)], "--max-payload-size", "100", talk=talk)
    assert not bench.prefill[0].received


@pytest.mark.parametrize("body", [b"", b"{", b"[1]"])
def test_malformed_json_is_refused_in_openais_form(stage: Any, run: Any, body: bytes) -> None:
    async def talk(bench: Any) -> None:
        call = await bench.post("/v1/completions", body)
        assert call.status == 400
        assert set(call.json()["error"]) == {"message", "type", "param", "code"}

    run([stage.answering(200)], [stage.answering(200)], talk=talk)
