"""What the routes of one server share."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from runtime.engine.request import Engine, EngineStats, TokenEvent
from runtime.engine.server.assembly import TextDecoder
from runtime.engine.server.errors import RequestError
from runtime.engine.server.exchange import LoopExchange
from runtime.engine.server.generation import Generation, SequenceProgress
from runtime.engine.server.metrics import EngineMetrics
from runtime.engine.settings import EngineSettings


class Phase(StrEnum):
    STARTING = "starting"  # the port is open, the model is loading
    READY = "ready"
    STOPPING = "stopping"


class Codec(Protocol):
    """Text to tokens and back; every method may be called from any thread."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, token_ids: Sequence[int]) -> str: ...

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """The prompt of a conversation, up to where the assistant's answer begins."""
        ...

    def decoder(self, *, skip_special_tokens: bool) -> TextDecoder: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The loaded engine with the facts that requests are checked against and clients are told."""

    engine: Engine
    codec: Codec | None  # None: the model has no tokenizer, requests bring token ids
    vocab_size: int
    context_len: int  # most tokens of prompt and answer together
    num_pool_tokens: int  # token slots of the KV pool
    model_type: str
    architecture: str
    tokenizer_path: str | None  # a local folder that other tools can load; None when there is none


class ServerState:
    """Lives on the event loop; only `stats` is called from elsewhere."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.started_at_s = time.time()
        self.phase = Phase.STARTING
        self.metrics = EngineMetrics(settings.served_model_name, self.stats)
        self._model: ServedModel | None = None
        self._exchange = LoopExchange[TokenEvent](asyncio.get_running_loop())
        self._serials = itertools.count(1)
        self._generations: dict[Generation, str] = {}

    @property
    def model(self) -> ServedModel:
        """The model, or 503 while there is none to answer with."""
        if self._model is None:
            raise RequestError("the model is still loading", status=503)
        if self.phase is Phase.STOPPING:
            raise RequestError("the server is shutting down", status=503)
        return self._model

    def become_ready(self, model: ServedModel) -> None:
        self._model = model
        self.phase = Phase.READY

    def stats(self) -> EngineStats | None:
        return None if self._model is None else self._model.engine.stats()

    def engine_rid(self, public_rid: str) -> str:
        """A name that is unique in this process: a router's retry repeats the client's name."""
        return f"{public_rid}#{next(self._serials)}"

    @asynccontextmanager
    async def generate(
        self, sequences: Sequence[SequenceProgress], *, request_id: str
    ) -> AsyncIterator[Generation]:
        """Run the sequences of one request; `cancel` finds them by `request_id` meanwhile."""
        model, exchange = self.model, self._exchange
        async with Generation(
            sequences, engine=model.engine, exchange=exchange, latencies=self.metrics
        ) as generation:
            self._generations[generation] = request_id
            try:
                yield generation
            finally:
                del self._generations[generation]

    def cancel(self, rid: str | None) -> int:
        """End what clients call `rid`, a request or one of its sequences; None ends all. Counts them."""
        num_cancelled = 0
        for generation, request_id in self._generations.items():
            for index, sequence in enumerate(generation.sequences):
                if sequence.finish is None and rid in (None, request_id, sequence.public_rid):
                    generation.cancel(index)
                    num_cancelled += 1
        return num_cancelled
