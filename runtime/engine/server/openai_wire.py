"""What OpenAI's two generating routes have in common on the wire."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runtime.engine.request import Finish, TokenLogprob
from runtime.engine.server.fields import Fields
from runtime.engine.server.generation import SequenceProgress
from runtime.engine.server.state import Codec, ServerState

MAX_CHOICES = 128

_ROUTE_FIELDS_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "continue_final_message": (False,),
    "return_hidden_states": (False,),
    "suffix": ("",),
    "best_of": (1,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The fields around the choices of every answer and chunk of one request."""

    request_id: str
    model_name: str
    created_s: int
    is_stream: bool
    includes_usage: bool  # `stream_options.include_usage`

    def wrap(self, kind: str, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """An answer or a chunk. OpenAI promises a null `usage` in every chunk before the one that has it."""
        answer: dict[str, Any] = {
            "id": self.request_id,
            "object": kind,
            "created": self.created_s,
            "model": self.model_name,
            "choices": choices,
        }
        if self.is_stream and self.includes_usage:
            answer["usage"] = None
        return answer


def read_envelope(state: ServerState, body: Fields, request_id: str) -> Envelope:
    return Envelope(
        request_id=request_id,
        model_name=state.settings.served_model_name,
        created_s=int(time.time()),
        is_stream=body.flag("stream"),
        includes_usage=body.child("stream_options").flag("include_usage"),
    )


def read_num_choices(body: Fields) -> int:
    body.refuse(_ROUTE_FIELDS_UNSUPPORTED)
    return body.integer("n", minimum=1, maximum=MAX_CHOICES) or 1


def usage(sequences: Sequence[SequenceProgress], num_choices: int) -> dict[str, int]:
    """Token counts; a prompt with several choices counts once."""
    num_prompt = sum(sequence.num_prompt_tokens for sequence in sequences[::num_choices])
    num_completion = sum(len(sequence.token_ids) for sequence in sequences)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_completion,
        "total_tokens": num_prompt + num_completion,
    }


def ending(finish: Finish | None) -> dict[str, Any]:
    """`finish_reason`, and what matched as SGLang's extension."""
    if finish is None:
        return {"finish_reason": None}
    return {"finish_reason": finish.reason.value, "matched_stop": finish.matched}


def chat_logprobs(entries: Sequence[TokenLogprob], codec: Codec) -> dict[str, Any]:
    """The `logprobs` object of a chat choice."""
    return {
        "content": [
            _chat_token(entry.token_id, entry.logprob, codec)
            | {"top_logprobs": [_chat_token(token_id, logprob, codec) for token_id, logprob in entry.top]}
            for entry in entries
        ]
    }


def completion_logprobs(entries: Sequence[TokenLogprob], codec: Codec, *, text_offset: int) -> dict[str, Any]:
    """The `logprobs` object of a completion choice; its first token begins at `text_offset` of the text."""
    tokens = [codec.decode((entry.token_id,)) for entry in entries]
    offsets: list[int] = []
    for token in tokens:
        offsets.append(text_offset)
        text_offset += len(token)
    return {
        "tokens": tokens,
        "token_logprobs": [entry.logprob for entry in entries],
        "top_logprobs": [
            {codec.decode((token_id,)): logprob for token_id, logprob in entry.top} for entry in entries
        ],
        "text_offset": offsets,
    }


def _chat_token(token_id: int, logprob: float, codec: Codec) -> dict[str, Any]:
    token = codec.decode((token_id,))
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}
