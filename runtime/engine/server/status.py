"""The routes that tell how the engine is, and the two that change something."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from runtime.engine.request import EngineStats, SamplingParams
from runtime.engine.server.errors import RequestError
from runtime.engine.server.fields import parse_object
from runtime.engine.server.http import read_body, run_while_connected
from runtime.engine.server.sampling_fields import SamplingRequest
from runtime.engine.server.sequences import SequencePlan, build_sequences
from runtime.engine.server.state import ServedModel, ServerState

# The loop goes round between two steps, and one step may compute a long chunk of a large model.
MAX_HEARTBEAT_AGE_S = 20.0
_HEALTH_TOKEN = 0  # in every vocabulary


class StatusRoutes:
    """Handlers bound to one server's state."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def health(self, request: Request) -> Response:
        """200 while the engine loop turns. Asks nothing of it, so it answers during a long prefill."""
        self._require_live_loop()
        return PlainTextResponse("OK")

    async def health_generate(self, request: Request) -> Response:
        """200 after one token was really generated. Needs no other half, in any mode."""
        model = self._require_live_loop()
        await run_while_connected(request.receive, self._generate_one_token(model))
        return PlainTextResponse("OK")

    async def models(self, request: Request) -> Response:
        return _json({"object": "list", "data": [self._model_card(self._state.model)]})

    async def one_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name != self._state.settings.served_model_name:
            raise RequestError(f"there is no model `{name}` here", status=404, param="model")
        return _json(self._model_card(self._state.model))

    async def model_facts(self, request: Request) -> Response:
        return _json(self._model_facts(self._state.model))

    async def server_facts(self, request: Request) -> Response:
        """How this server was started and how it is doing; named fields only, so no secret slips in."""
        state, settings = self._state, self._state.settings
        model = state.model
        facts = self._model_facts(model) | {
            "version": own_version(),
            "host": settings.host,
            "port": settings.port,
            "tp_size": settings.tp_size,
            "dp_size": settings.attn_dp_size,
            "ep_size": settings.ep_size,
            "nnodes": settings.nnodes,
            "load_balance_method": "round_robin",
            "disaggregation_transfer_backend": settings.transfer_backend,
            "disaggregation_bootstrap_port": settings.bootstrap_port,
            "page_size": settings.page_size,
            "dtype": settings.dtype,
            "device": settings.device,
            "context_length": model.context_len,
            "max_total_num_tokens": model.num_pool_tokens,
            "max_running_requests": settings.max_running_requests,
            "chunked_prefill_size": settings.chunked_prefill_size,
            "started_at": state.started_at_s,
            "uptime_s": time.time() - state.started_at_s,
            "status": state.phase.value,
            "stats": _stats_json(model.engine.stats()),
        }
        return _json(facts)

    async def load(self, request: Request) -> Response:
        """SGLang's older form, which sglang-router's power-of-two policy polls."""
        load = self._load(self._state.model)
        return _json(
            [
                {
                    "dp_rank": 0,
                    "num_reqs": load["num_total_reqs"],
                    "num_waiting_reqs": load["num_waiting_reqs"],
                    "num_tokens": load["num_used_tokens"],
                }
            ]
        )

    async def loads(self, request: Request) -> Response:
        return _json(
            {
                "timestamp": datetime.now(UTC).isoformat(),
                "version": own_version(),
                "dp_rank_count": 1,
                "loads": [self._load(self._state.model)],
            }
        )

    async def flush_cache(self, request: Request) -> Response:
        """Nothing to do: pages are freed with their request, no prefix outlives it."""
        self._require_live_loop()
        return PlainTextResponse("cache flushed: this engine keeps no prefix cache\n")

    async def abort(self, request: Request) -> Response:
        """End one request, or all with `abort_all`. An unknown one is no error: it may just have ended."""
        body = parse_object(await read_body(request.receive))
        rid = body.text("rid", max_len=256)
        if rid is None and not body.flag("abort_all"):
            raise body.wrong("rid", "the id of a request, or `abort_all` to be true")
        return _json({"num_aborted": self._state.cancel(None if body.flag("abort_all") else rid)})

    async def metrics(self, request: Request) -> Response:
        return Response(
            self._state.metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    async def _generate_one_token(self, model: ServedModel) -> None:
        sampling = SamplingRequest(params=SamplingParams(max_new_tokens=1, temperature=0.0, ignore_eos=True))
        plan = SequencePlan(
            rid="health-check",
            token_ids=(_HEALTH_TOKEN,),
            sampling=sampling,
            rendezvous=None,
            num_top_logprobs=None,
        )
        sequences = build_sequences([plan], state=self._state, model=model)
        try:
            async with (
                asyncio.timeout(MAX_HEARTBEAT_AGE_S),
                self._state.generate(sequences, request_id=plan.rid) as generation,
            ):
                await generation.collect()
        except TimeoutError as fault:
            raise RequestError(f"no token within {MAX_HEARTBEAT_AGE_S:g} s", status=503) from fault

    def _require_live_loop(self) -> ServedModel:
        model = self._state.model
        age_s = model.engine.heartbeat_age_s()
        if age_s > MAX_HEARTBEAT_AGE_S:
            raise RequestError(f"the engine loop has not gone round for {age_s:.0f} s", status=503)
        return model

    def _model_card(self, model: ServedModel) -> dict[str, Any]:
        name = self._state.settings.served_model_name
        return {
            "id": name,
            "object": "model",
            "created": int(self._state.started_at_s),
            "owned_by": "pdctl",
            "root": name,
            "parent": None,
            "max_model_len": model.context_len,
        }

    def _model_facts(self, model: ServedModel) -> dict[str, Any]:
        """SGLang's `/model_info`. The paths are there only if a router can load a tokenizer from them.

        sglang-router looks any other path up on a public hub.
        """
        settings = self._state.settings
        facts: dict[str, Any] = {
            "served_model_name": settings.served_model_name,
            "is_generation": True,
            "disaggregation_mode": settings.mode.value,
            "model_type": model.model_type,
            "architectures": [model.architecture],
        }
        if model.tokenizer_path is not None:
            facts |= {"model_path": settings.model_path, "tokenizer_path": model.tokenizer_path}
        return facts

    def _load(self, model: ServedModel) -> dict[str, Any]:
        stats = model.engine.stats()
        num_used_pages = stats.num_pages - stats.num_free_pages
        num_waiting = stats.num_waiting + stats.num_handshaking + stats.num_transferring
        return {
            "dp_rank": 0,
            "num_running_reqs": stats.num_running,
            "num_waiting_reqs": num_waiting,
            "num_total_reqs": stats.num_running + num_waiting,
            "num_used_tokens": num_used_pages * self._state.settings.page_size,
            "max_total_num_tokens": model.num_pool_tokens,
            "token_usage": num_used_pages / stats.num_pages if stats.num_pages else 0.0,
            "max_running_requests": self._state.settings.max_running_requests,
            "disaggregation": {
                "mode": self._state.settings.mode.value,
                "num_handshaking_reqs": stats.num_handshaking,
                "num_transferring_reqs": stats.num_transferring,
            },
        }


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")


def own_version() -> str:
    try:
        return version("pdctl")
    except PackageNotFoundError:  # run from a source folder that was never installed
        return "unknown"


def _stats_json(stats: EngineStats) -> dict[str, Any]:
    values = asdict(stats)
    return values | {"extra": dict(stats.extra)}
