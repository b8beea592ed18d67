"""OpenAI's `POST /v1/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runtime.engine.request import TokenLogprob
from runtime.engine.server.answer import PlannedRequest
from runtime.engine.server.assembly import Piece
from runtime.engine.server.errors import RequestError
from runtime.engine.server.fields import Fields
from runtime.engine.server.generation import Generation
from runtime.engine.server.http import stream_event
from runtime.engine.server.openai_wire import (
    Envelope,
    completion_logprobs,
    ending,
    read_envelope,
    read_num_choices,
    usage,
)
from runtime.engine.server.prompts import Prompt, check_num_sequences, read_prompts, require_codec, tokenise
from runtime.engine.server.rendezvous import read_rendezvous
from runtime.engine.server.routed_rank import read_routed_rank
from runtime.engine.server.sampling_fields import MAX_NEW_TOKENS, read_openai_sampling
from runtime.engine.server.sequences import SequencePlan, build_sequences, sequence_rids
from runtime.engine.server.state import Codec, ServedModel, ServerState

_DEFAULT_MAX_TOKENS = 16  # OpenAI's
_MAX_LOGPROBS = 20
_KIND = "text_completion"  # of whole answers and of chunks


async def plan_completion(state: ServerState, body: Fields, request_id: str) -> PlannedRequest:
    """Check a body of `/v1/completions`. Sequences are ordered by prompt, then by choice, as OpenAI does."""
    model = state.model
    prompts, _ = read_prompts("prompt", body.raw("prompt"))
    num_choices = read_num_choices(body)
    check_num_sequences(len(prompts) * num_choices)
    routed_dp_rank = read_routed_rank(body, state.settings)
    rendezvous = read_rendezvous(body, state.settings, num_prompts=len(prompts), num_choices=num_choices)
    max_tokens = body.integer("max_tokens", minimum=1, maximum=MAX_NEW_TOKENS)
    sampling = read_openai_sampling(body, max_new_tokens=max_tokens or _DEFAULT_MAX_TOKENS)
    num_top_logprobs = body.integer("logprobs", minimum=0, maximum=_MAX_LOGPROBS)
    echoes = _read_echoes(body, prompts, model, has_logprobs=num_top_logprobs is not None)
    token_lists = await tokenise("prompt", prompts, model)
    rids = sequence_rids(request_id, len(prompts) * num_choices)
    plans = [
        SequencePlan(
            rid=rids[index],
            token_ids=token_lists[index // num_choices],
            sampling=sampling,
            rendezvous=rendezvous[index],
            routed_dp_rank=routed_dp_rank,
            num_top_logprobs=num_top_logprobs,
            choice=index % num_choices,
        )
        for index in range(len(rids))
    ]
    envelope = read_envelope(state, body, request_id)
    return PlannedRequest(
        request_id=request_id,
        sequences=build_sequences(plans, state=state, model=model),
        form=_CompletionForm(
            envelope=envelope,
            num_choices=num_choices,
            echoes=echoes,
            logprob_codec=None if num_top_logprobs is None else require_codec(model),
        ),
        is_stream=envelope.is_stream,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompletionForm:
    envelope: Envelope
    num_choices: int
    echoes: Sequence[str]  # text before the answer, for each prompt
    logprob_codec: Codec | None

    def document(self, generation: Generation) -> Any:
        choices = [
            self._choice(
                index,
                self._echo(index) + sequence.text,
                self._logprobs(sequence.logprobs, 0),
                ending(sequence.finish),
            )
            for index, sequence in enumerate(generation.sequences)
        ]
        return self.envelope.wrap(_KIND, choices) | {"usage": usage(generation.sequences, self.num_choices)}

    def opening(self) -> bytes:
        return b"".join(
            self._chunk(self._choice(prompt_index * self.num_choices + choice, echo, None, ending(None)))
            for prompt_index, echo in enumerate(self.echoes)
            for choice in range(self.num_choices)
            if echo
        )

    def part(self, index: int, piece: Piece, generation: Generation) -> bytes:
        if not (piece.text or piece.finish or (self.logprob_codec and piece.logprobs)):
            return b""
        text_offset = len(generation.sequences[index].text) - len(piece.text) if self.logprob_codec else 0
        logprobs = self._logprobs(piece.logprobs, text_offset)
        return self._chunk(self._choice(index, piece.text, logprobs, ending(piece.finish)))

    def closing(self, generation: Generation) -> bytes:
        if not self.envelope.includes_usage:
            return b""
        totals = usage(generation.sequences, self.num_choices)
        return stream_event(self.envelope.wrap(_KIND, []) | {"usage": totals})

    def _echo(self, index: int) -> str:
        return self.echoes[index // self.num_choices]

    def _logprobs(self, entries: Sequence[TokenLogprob], text_offset: int) -> dict[str, Any] | None:
        if self.logprob_codec is None:
            return None
        return completion_logprobs(entries, self.logprob_codec, text_offset=text_offset)

    def _choice(
        self, index: int, text: str, logprobs: dict[str, Any] | None, end: dict[str, Any]
    ) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": logprobs, **end}

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        return stream_event(self.envelope.wrap(_KIND, [choice]))


def _read_echoes(
    body: Fields, prompts: Sequence[Prompt], model: ServedModel, *, has_logprobs: bool
) -> list[str]:
    """The prompts as text when `echo` asks for them in front of the answers, empty strings otherwise."""
    if not body.flag("echo"):
        return [""] * len(prompts)
    if has_logprobs:
        raise RequestError(
            "`echo` with `logprobs` asks for logprobs of the prompt, wanted one of them: this engine gives "
            "logprobs of generated tokens only",
            param="echo",
        )
    return [prompt if isinstance(prompt, str) else _decode_checked(prompt, model) for prompt in prompts]


def _decode_checked(token_ids: tuple[int, ...], model: ServedModel) -> str:
    inside = tuple(token_id for token_id in token_ids if 0 <= token_id < model.vocab_size)
    return require_codec(model).decode(inside)  # ids outside are refused when the prompt is tokenised
