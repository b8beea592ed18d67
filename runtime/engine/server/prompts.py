"""Prompts from a body: text or token ids, one or many; then sequences for the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from runtime.engine.server.errors import RequestError, shown
from runtime.engine.server.state import Codec, ServedModel

MAX_SEQUENCES = 1024  # of one HTTP request
_INLINE_CHARS = 8_192  # tokenising more than this would hold up every other request on the event loop

Prompt = str | tuple[int, ...]


def read_prompts(name: str, value: Any, *, is_token_field: bool | None = None) -> tuple[list[Prompt], bool]:
    """The prompts in `value`, and whether they came as a batch.

    `is_token_field` says that only token ids (True) or only text (False) may be there; None allows both.
    """
    if isinstance(value, str) and not is_token_field:
        return [value], False
    if isinstance(value, list) and value:
        if all(type(item) is int for item in value) and is_token_field is not False:
            return [tuple(value)], False
        if all(isinstance(item, str) for item in value) and not is_token_field:
            return list(value), True
        if all(_is_token_list(item) for item in value) and is_token_field is not False:
            return [tuple(item) for item in value], True
    wanted = {
        True: "a list of token ids, or a list of such lists",
        False: "a string or a list of strings",
        None: "a string, a list of strings, a list of token ids, or a list of such lists",
    }[is_token_field]
    raise RequestError.wrong_value(name, value, wanted)


async def tokenise(name: str, prompts: Sequence[Prompt], model: ServedModel) -> list[tuple[int, ...]]:
    """Token ids of each prompt, all inside the vocabulary and none empty."""
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    encoded: list[list[int]] = []
    if texts:
        codec = require_codec(model)
        if sum(map(len, texts)) <= _INLINE_CHARS:
            encoded = [codec.encode(text) for text in texts]
        else:
            encoded = await asyncio.to_thread(lambda: [codec.encode(text) for text in texts])
    remaining = iter(encoded)
    token_lists = [tuple(next(remaining)) if isinstance(prompt, str) else prompt for prompt in prompts]
    for token_ids in token_lists:
        _check_tokens(name, token_ids, model.vocab_size)
    return token_lists


def require_codec(model: ServedModel) -> Codec:
    if model.codec is None:
        raise RequestError("this model has no tokenizer: send token ids (`input_ids`, or `prompt` as a list)")
    return model.codec


def check_num_sequences(num_sequences: int) -> None:
    if num_sequences > MAX_SEQUENCES:
        raise RequestError(f"the request asks for {num_sequences} sequences, wanted at most {MAX_SEQUENCES}")


def _is_token_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


def _check_tokens(name: str, token_ids: tuple[int, ...], vocab_size: int) -> None:
    if not token_ids:
        raise RequestError(f"`{name}` is empty, wanted at least one token", param=name)
    for token_id in (min(token_ids), max(token_ids)):
        if not 0 <= token_id < vocab_size:
            raise RequestError(
                f"`{name}` has the token id {shown(token_id)}, wanted ids from 0 to {vocab_size - 1}",
                param=name,
            )
