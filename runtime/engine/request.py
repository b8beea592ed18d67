"""The values that cross between the HTTP server and the engine loop.

The server (asyncio, main thread) submits a `GenerateInput` and gets `TokenEvent`s back; the engine loop (its
own thread) calls the listener. Nothing else is shared between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

# Below it, logits divided by the temperature leave the range of float32. SGLang's limit (sampling_params.py).
SMALLEST_TEMPERATURE = 1e-6


class FinishReason(StrEnum):
    """Why a request ended, in the words of SGLang's `meta_info.finish_reason.type`."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is drawn; field names and defaults are SGLang's `sampling_params`."""

    max_new_tokens: int = 128
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None  # None keeps the whole vocabulary
    seed: int | None = None  # None draws from the engine's own generator
    stop: tuple[str, ...] = ()  # matched by the server on text, never seen by the engine loop
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    @property
    def is_greedy(self) -> bool:
        return self.temperature < SMALLEST_TEMPERATURE or self.top_k == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """Where the two halves of a disaggregated request meet; the router writes it into both bodies."""

    bootstrap_host: str
    bootstrap_port: int
    room: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateInput:
    """One sequence to continue. Batches are split into these before they reach the engine."""

    rid: str
    token_ids: tuple[int, ...]
    sampling: SamplingParams
    rendezvous: Rendezvous | None = None  # None in unified mode
    num_top_logprobs: int | None = None  # None asks for no logprobs, 0 for the chosen token's alone
    routed_dp_rank: int | None = None  # the attention-DP rank to compute it; None leaves it to the engine


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    token_id: int
    logprob: float  # natural logarithm
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The end of a request; `status` is an abort's HTTP status: 400 theirs, 500 ours, 503 retry."""

    reason: FinishReason
    matched: int | str | None = None  # the stop token or stop string
    message: str | None = None
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvent:
    """New tokens of one request, in order; the last event of a request carries `finish`."""

    rid: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: Finish | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A snapshot for `/server_info` and `/metrics`; counts are since the start, the rest is now."""

    num_requests: int = 0
    num_finished: int = 0
    num_aborted: int = 0
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0
    num_running: int = 0
    num_waiting: int = 0  # admitted, not yet computed
    num_handshaking: int = 0  # rooms in Bootstrapping or WaitingForInput
    num_transferring: int = 0
    num_free_pages: int = 0
    num_pages: int = 0
    transfer_bytes: int = 0
    extra: Mapping[str, float] = field(default_factory=dict)


Listener = Callable[[TokenEvent], None]


class Engine(Protocol):
    """The engine loop as the HTTP server sees it. Any thread may call any method; each returns at once."""

    def submit(self, request: GenerateInput, listener: Listener) -> None:
        """Queue a request; the engine thread calls `listener`, in order, until an event has `finish`."""
        ...

    def abort(self, rid: str) -> None:
        """End a request and free all it holds. Unknown or finished ids are ignored."""
        ...

    def stats(self) -> EngineStats: ...

    def heartbeat_age_s(self) -> float:
        """Seconds since the loop last went round: a large value means it hangs."""
        ...

    def close(self) -> None:
        """Abort everything, stop the loop, close sockets. Idempotent."""
        ...
