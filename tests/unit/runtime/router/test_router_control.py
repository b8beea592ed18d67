"""The routes that are not generation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def run(stage: Any) -> Callable[..., Any]:
    def run_talk(prefill: list[Any], decode: list[Any], talk: Any, **fields: Any) -> Any:
        async def scenario() -> Any:
            async with stage.open_bench(prefill, decode, **fields) as bench, asyncio.timeout(20):
                await talk(bench)
            return bench

        return asyncio.run(scenario())

    return run_talk


def test_router_is_alive_before_any_worker_is(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        assert (await bench.get("/health")).status == 200
        readiness = await bench.get("/readiness")
        assert readiness.status == 503
        assert readiness.json()["healthy_workers"] == {"prefill": 0, "decode": 0}

    run([stage.answering(200)], [stage.answering(200)], talk, is_polled=False)


def test_router_is_ready_with_one_healthy_worker_of_each_role(stage: Any, run: Any) -> None:
    async def ill(request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(stage.http_answer(503))

    async def talk(bench: Any) -> None:
        assert (await bench.get("/readiness")).status == 200
        bench.prefill[1].script = ill
        for _ in range(3):
            await bench.poll()
        assert (await bench.get("/readiness")).status == 503

    run([ill, stage.answering(200)], [stage.answering(200)], talk)


def test_workers_are_listed_as_sglang_router_lists_them(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        listing = (await bench.get("/workers")).json()
        assert listing["total"] == 2
        assert listing["stats"] == {"prefill_count": 1, "decode_count": 1, "regular_count": 0}
        assert listing["workers"][0] == {
            "id": f"prefill@{bench.prefill[0].url}",
            "url": bench.prefill[0].url,
            "worker_type": "prefill",
            "is_healthy": True,
            "load": 0,
            "bootstrap_port": 8998,
        }
        assert listing["workers"][1]["bootstrap_port"] is None

    run([stage.answering(200)], [stage.answering(200)], talk)


@pytest.mark.parametrize("path", ["/v1/models", "/get_model_info", "/model_info", "/get_server_info"])
def test_questions_about_the_model_are_passed_on(stage: Any, run: Any, path: str) -> None:
    async def talk(bench: Any) -> None:
        call = await bench.get(path, headers=[(b"authorization", b"Bearer k")])
        assert (call.status, call.reply_body) == (200, b'{"id":"m"}')
        assert bench.prefill[0].received[0].path == path
        assert bench.prefill[0].received[0].headers["authorization"] == "Bearer k"

    run([stage.answering(200, b'{"id":"m"}')], [stage.answering(200)], talk)


def test_question_goes_to_decode_when_prefill_is_out(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        assert (await bench.get("/v1/models")).reply_body == b"decode"

    async def ill(request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(stage.http_answer(503))

    run([ill], [stage.answering(200, b"decode")], talk)


def test_question_without_a_worker_is_503_and_to_a_dead_one_502(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        assert (await bench.get("/v1/models")).status == 503
        await bench.poll()
        await bench.prefill[0].stop()
        assert (await bench.get("/v1/models")).status == 502

    run([stage.answering(200)], [stage.answering(200)], talk, is_polled=False)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_flush_reaches_all_workers(stage: Any, run: Any, method: str) -> None:
    async def talk(bench: Any) -> None:
        call = await bench.call("/flush_cache", method=method).run()
        assert (call.status, call.json()["workers_flushed"]) == (200, 3)

    bench = run([stage.answering(200)], [stage.answering(200)] * 2, talk)
    for worker in (*bench.prefill, *bench.decode):
        assert [(request.method, request.path) for request in worker.received] == [("POST", "/flush_cache")]


def test_flush_says_which_worker_failed(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        call = await bench.post("/flush_cache", b"")
        assert call.status == 502
        assert f"decode {bench.decode[0].url} answered 400" in call.json()["error"]["message"]

    run([stage.answering(200)], [stage.answering(400)], talk)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/generate", 405),
        ("POST", "/health", 405),
        ("DELETE", "/workers", 405),
    ],
)
def test_unknown_route_or_method_is_an_error_in_openais_form(
    stage: Any, run: Any, method: str, path: str, status: int
) -> None:
    async def talk(bench: Any) -> None:
        call = await bench.call(path, method=method).run()
        assert call.status == status
        assert json.loads(call.reply_body)["error"]["type"] == "invalid_request_error"

    run([stage.answering(200)], [stage.answering(200)], talk)


def test_metrics_count_requests_retries_errors_and_durations(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        await bench.post("/generate", {"text": "a"})
        await bench.post("/generate", b"{")
        call = await bench.get("/metrics")
        assert call.reply_headers[b"content-type"].startswith(b"text/plain")
        lines = set(call.reply_body.decode().splitlines())
        url = bench.decode[0].url
        assert lines >= {
            'pdctl_router_requests_total{route="/generate",status="500"} 1.0',
            'pdctl_router_requests_total{route="/generate",status="400"} 1.0',
            'pdctl_router_retries_total{failed_role="decode"} 4.0',
            f'pdctl_router_worker_errors_total{{kind="status",role="decode",worker="{url}"}} 5.0',
            f'pdctl_router_worker_healthy{{role="decode",worker="{url}"}} 1.0',
            f'pdctl_router_worker_in_flight{{role="decode",worker="{url}"}} 0.0',
            "pdctl_router_requests_in_flight 0.0",
            'pdctl_router_request_duration_seconds_count{route="/generate"} 2.0',
            'pdctl_router_request_duration_seconds_bucket{le="+Inf",route="/generate"} 2.0',
        }

    run([stage.answering(200)], [stage.answering(500)], talk)


def test_unforeseen_error_is_an_answer_and_does_not_stop_the_router(stage: Any, run: Any) -> None:
    async def talk(bench: Any) -> None:
        # A worker list that breaks the code stands for a bug that nobody has thought of.
        bench.app._generation._prefill.workers = None
        call = await bench.post("/generate", {"text": "a"})
        assert (call.status, call.json()["error"]["code"]) == (500, "internal_error")
        assert (await bench.get("/health")).status == 200

    run([stage.answering(200)], [stage.answering(200)], talk)
