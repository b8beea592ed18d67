"""OpenAI's `POST /v1/chat/completions`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from runtime.engine.chat_template import ChatTemplateError
from runtime.engine.server.answer import PlannedRequest
from runtime.engine.server.assembly import Piece
from runtime.engine.server.errors import RequestError, shown
from runtime.engine.server.fields import Fields
from runtime.engine.server.generation import Generation
from runtime.engine.server.http import stream_event
from runtime.engine.server.openai_wire import (
    Envelope,
    chat_logprobs,
    ending,
    read_envelope,
    read_num_choices,
    usage,
)
from runtime.engine.server.prompts import require_codec
from runtime.engine.server.rendezvous import read_rendezvous
from runtime.engine.server.routed_rank import read_routed_rank
from runtime.engine.server.sampling_fields import MAX_NEW_TOKENS, read_openai_sampling
from runtime.engine.server.sequences import SequencePlan, build_sequences, sequence_rids
from runtime.engine.server.state import Codec, ServedModel, ServerState

_MAX_TOP_LOGPROBS = 20
_MAX_MESSAGES = 4096
_WHOLE, _CHUNK = "chat.completion", "chat.completion.chunk"


async def plan_chat(state: ServerState, body: Fields, request_id: str) -> PlannedRequest:
    """Check a body of `/v1/chat/completions`."""
    model = state.model
    codec = require_codec(model)
    num_choices = read_num_choices(body)
    routed_dp_rank = read_routed_rank(body, state.settings)
    rendezvous = read_rendezvous(body, state.settings, num_prompts=1, num_choices=num_choices)
    num_top_logprobs = _read_logprobs(body)
    messages = read_messages(body)
    token_ids = await _encode(codec, messages)
    sampling = read_openai_sampling(body, max_new_tokens=_read_max_tokens(body, len(token_ids), model))
    rids = sequence_rids(request_id, num_choices)
    plans = [
        SequencePlan(
            rid=rids[choice],
            token_ids=token_ids,
            sampling=sampling,
            rendezvous=rendezvous[choice],
            routed_dp_rank=routed_dp_rank,
            num_top_logprobs=num_top_logprobs,
            choice=choice,
        )
        for choice in range(num_choices)
    ]
    envelope = read_envelope(state, body, request_id)
    return PlannedRequest(
        request_id=request_id,
        sequences=build_sequences(plans, state=state, model=model),
        form=_ChatForm(
            envelope=envelope,
            num_choices=num_choices,
            logprob_codec=None if num_top_logprobs is None else codec,
        ),
        is_stream=envelope.is_stream,
    )


async def _encode(codec: Codec, messages: list[dict[str, str]]) -> tuple[int, ...]:
    """In a thread: a template is a program, and a conversation may be long."""
    try:
        return tuple(await asyncio.to_thread(codec.encode_chat, messages))
    except ChatTemplateError as fault:
        raise RequestError(
            f"`messages` don't fit the model's chat template: {fault}", param="messages"
        ) from fault


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChatForm:
    envelope: Envelope
    num_choices: int
    logprob_codec: Codec | None

    def document(self, generation: Generation) -> Any:
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": sequence.text},
                "logprobs": chat_logprobs(sequence.logprobs, self.logprob_codec)
                if self.logprob_codec
                else None,
                **ending(sequence.finish),
            }
            for index, sequence in enumerate(generation.sequences)
        ]
        return self.envelope.wrap(_WHOLE, choices) | {"usage": usage(generation.sequences, self.num_choices)}

    def opening(self) -> bytes:
        delta = {"role": "assistant", "content": ""}
        return b"".join(self._chunk(index, delta) for index in range(self.num_choices))

    def part(self, index: int, piece: Piece, generation: Generation) -> bytes:
        logprobs = chat_logprobs(piece.logprobs, self.logprob_codec) if self.logprob_codec else None
        chunks = b""
        if piece.text or (logprobs and logprobs["content"]):
            chunks = self._chunk(index, {"content": piece.text}, logprobs=logprobs)
        if piece.finish is not None:
            chunks += self._chunk(index, {}, **ending(piece.finish))
        return chunks

    def closing(self, generation: Generation) -> bytes:
        if not self.envelope.includes_usage:
            return b""
        totals = usage(generation.sequences, self.num_choices)
        return stream_event(self.envelope.wrap(_CHUNK, []) | {"usage": totals})

    def _chunk(self, index: int, delta: dict[str, str], **rest: Any) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None} | rest
        return stream_event(self.envelope.wrap(_CHUNK, [choice]))


def read_messages(body: Fields) -> list[dict[str, str]]:
    """The conversation, each message with a role and plain text."""
    value = body.raw("messages")
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_MESSAGES:
        raise body.wrong("messages", f"a list of 1 to {_MAX_MESSAGES} messages")
    messages: list[dict[str, str]] = []
    for index, message in enumerate(value):
        name = f"messages[{index}]"
        if not isinstance(message, dict):
            raise RequestError.wrong_value(name, message, "an object with `role` and `content`")
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise RequestError.wrong_value(f"{name}.role", role, "a string such as `user`")
        messages.append({"role": role, "content": _content_text(f"{name}.content", message.get("content"))})
    return messages


def _content_text(name: str, content: Any) -> str:
    """The text of a message: a string, or a list of text parts."""
    if content is None:  # an assistant's turn that only called tools
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError.wrong_value(name, content, "a string or a list of text parts")
    texts: list[str] = []
    for index, part in enumerate(content):
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise RequestError(
                f"`{name}[{index}]` is {shown(part)}, wanted a text part: this model reads text only",
                param=name,
            )
        texts.append(text)
    return "".join(texts)


def _read_max_tokens(body: Fields, num_prompt_tokens: int, model: ServedModel) -> int:
    """OpenAI's newer name wins; without either the answer may fill the context."""
    for key in ("max_completion_tokens", "max_tokens"):
        value = body.integer(key, minimum=1, maximum=MAX_NEW_TOKENS)
        if value is not None:
            return value
    return max(1, model.context_len - num_prompt_tokens)


def _read_logprobs(body: Fields) -> int | None:
    num_top = body.integer("top_logprobs", minimum=0, maximum=_MAX_TOP_LOGPROBS)
    if body.flag("logprobs"):
        return num_top or 0
    if num_top:
        raise body.wrong("top_logprobs", "`logprobs` to be true with it")
    return None
