"""From a checked request to its answer: run the sequences, send one JSON document or a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import Send

from runtime.engine.server.assembly import Piece
from runtime.engine.server.errors import RequestError
from runtime.engine.server.generation import Generation, SequenceProgress, raise_if_aborted
from runtime.engine.server.http import (
    STREAM_DONE,
    send_json,
    send_stream_part,
    start_stream,
    stream_error,
)
from runtime.engine.server.state import ServerState


class AnswerForm(Protocol):
    """How one API writes answers. `bytes` are whole server-sent events, any number of them."""

    def document(self, generation: Generation) -> Any:
        """The JSON answer, once all sequences have finished."""
        ...

    def opening(self) -> bytes:
        """What a stream begins with."""
        ...

    def part(self, index: int, piece: Piece, generation: Generation) -> bytes:
        """The events for the next piece of sequence `index`; `generation` already includes it."""
        ...

    def closing(self, generation: Generation) -> bytes:
        """What a stream ends with, before `[DONE]`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """A body that passed every check."""

    request_id: str
    sequences: Sequence[SequenceProgress]
    form: AnswerForm
    is_stream: bool


async def answer(state: ServerState, planned: PlannedRequest, send: Send) -> None:
    """Generate, and send what comes."""
    async with state.generate(planned.sequences, request_id=planned.request_id) as generation:
        if planned.is_stream:
            await _stream(generation, planned.form, send)
        else:
            await generation.collect()
            await send_json(send, planned.form.document(generation))


async def _stream(generation: Generation, form: AnswerForm, send: Send) -> None:
    """Send events as tokens come. The status line waits for the first token.

    A request that fails before it therefore has a status that a router can retry on; afterwards an error can
    only be an event.
    """
    pieces = await generation.next_pieces()
    for _, piece in pieces:
        raise_if_aborted(piece)
    await start_stream(send)
    parts = [form.opening()]
    try:
        while pieces:
            for index, piece in pieces:
                raise_if_aborted(piece)
                parts.append(form.part(index, piece, generation))
            await send_stream_part(send, b"".join(parts))
            parts.clear()
            pieces = await generation.next_pieces()
        ending = form.closing(generation)
    except RequestError as error:
        ending = stream_error(error)
    await send_stream_part(send, ending + STREAM_DONE, is_last=True)
