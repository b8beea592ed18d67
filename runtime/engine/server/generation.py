"""The sequences of one HTTP request, from submission to their last token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from runtime.engine.request import Engine, Finish, FinishReason, GenerateInput, TokenEvent, TokenLogprob
from runtime.engine.server.assembly import Piece, TextAssembly, joined
from runtime.engine.server.errors import RequestError
from runtime.engine.server.exchange import LoopExchange


class LatencySink(Protocol):
    """Where the times of a request are counted."""

    def first_token(self, elapsed_s: float) -> None: ...

    def later_tokens(self, elapsed_s: float, num_tokens: int) -> None:
        """`num_tokens` came together, `elapsed_s` after the tokens before them."""
        ...

    def finished(self, elapsed_s: float) -> None: ...


@dataclass(slots=True, kw_only=True)
class SequenceProgress:
    """One sequence: what was asked, and everything that came back so far."""

    request: GenerateInput
    public_rid: str  # what the client calls it; `request.rid` is unique in this process, this may not be
    assembly: TextAssembly
    text_parts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: Finish | None = None
    last_token_s: float | None = None  # monotonic

    @property
    def text(self) -> str:
        if len(self.text_parts) > 1:
            self.text_parts = ["".join(self.text_parts)]
        return self.text_parts[0] if self.text_parts else ""

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.token_ids)

    def add(self, piece: Piece) -> None:
        if piece.text:
            self.text_parts.append(piece.text)
        self.token_ids.extend(piece.token_ids)
        self.logprobs.extend(piece.logprobs)
        self.finish = piece.finish


class Generation:
    """Submits sequences, hands out their pieces in order, and aborts what is unfinished when it is left.

    An async context manager on the event loop; leaving it in any way (answer complete, client gone, error)
    frees everything that the engine holds for it.
    """

    def __init__(
        self,
        sequences: Sequence[SequenceProgress],
        *,
        engine: Engine,
        exchange: LoopExchange[TokenEvent],
        latencies: LatencySink,
    ) -> None:
        self.sequences = tuple(sequences)
        self.started_s = time.monotonic()
        self._engine = engine
        self._exchange = exchange
        self._latencies = latencies
        self._inbox: list[tuple[int, TokenEvent]] = []
        self._waiter: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        for index, sequence in enumerate(self.sequences):
            self._submit(index, sequence.request)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sequence in self.sequences:
            if sequence.finish is None:
                self._engine.abort(sequence.request.rid)

    def elapsed_s(self) -> float:
        return time.monotonic() - self.started_s

    def cancel(self, index: int) -> None:
        """End one sequence at the wish of the client; it keeps what it has."""
        rid = self.sequences[index].request.rid
        self._engine.abort(rid)
        finish = Finish(reason=FinishReason.ABORT, message="aborted by request")
        self._deliver(index, TokenEvent(rid=rid, finish=finish))

    async def next_pieces(self) -> list[tuple[int, Piece]]:
        """Wait for tokens: at most one piece per sequence, empty when all have finished.

        Text is made here and not where events arrive, so that a fault in it fails this request alone.
        """
        while True:
            pieces = self._take_pieces()
            if pieces or all(sequence.finish is not None for sequence in self.sequences):
                return pieces
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    async def collect(self) -> None:
        """Wait until every sequence has finished; an abort of the engine's is raised as an error."""
        while pieces := await self.next_pieces():
            for _, piece in pieces:
                raise_if_aborted(piece)

    def _submit(self, index: int, request: GenerateInput) -> None:
        def deliver(event: TokenEvent) -> None:
            self._deliver(index, event)

        self._engine.submit(request, lambda event: self._exchange.post(deliver, event))

    def _deliver(self, index: int, event: TokenEvent) -> None:
        self._inbox.append((index, event))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _take_pieces(self) -> list[tuple[int, Piece]]:
        events, self._inbox = self._inbox, []
        pieces: dict[int, list[Piece]] = {}
        for index, event in events:
            sequence = self.sequences[index]
            if sequence.finish is not None:  # it ended at a stop string; the engine has not heard of it yet
                continue
            piece = sequence.assembly.push(event)
            self._measure(sequence, len(piece.token_ids))
            sequence.add(piece)
            pieces.setdefault(index, []).append(piece)
            if piece.finish is not None:
                self._latencies.finished(self.elapsed_s())
                if event.finish is None:
                    self._engine.abort(event.rid)
        return [(index, joined(parts)) for index, parts in pieces.items()]

    def _measure(self, sequence: SequenceProgress, num_tokens: int) -> None:
        if num_tokens == 0:
            return
        now_s = time.monotonic()
        if sequence.last_token_s is None:
            self._latencies.first_token(now_s - self.started_s)
        else:
            self._latencies.later_tokens(now_s - sequence.last_token_s, num_tokens)
        sequence.last_token_s = now_s


def raise_if_aborted(piece: Piece) -> None:
    """An abort that carries an HTTP status is a failure; one without is the client's own wish."""
    finish = piece.finish
    if finish is not None and finish.reason is FinishReason.ABORT and finish.status != 200:
        raise RequestError(finish.message or "the request was aborted", status=finish.status)
