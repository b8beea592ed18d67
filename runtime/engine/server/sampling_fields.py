"""Sampling parameters from a body: SGLang's `sampling_params` object, or OpenAI's top-level fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime.engine.request import SamplingParams
from runtime.engine.server.errors import RequestError
from runtime.engine.server.fields import Fields, is_integer
from runtime.engine.server.stop import MAX_STOP_CHARS, MAX_STOP_STRINGS

MAX_NEW_TOKENS = 2**31 - 1  # the engine ends a sequence at its context length, long before
MAX_TEMPERATURE = 1e6
MAX_SEED = 2**63 - 1
MAX_STOP_TOKEN_IDS = 256
_MAX_TOP_K = 2**31 - 1

# Values with which a field we don't implement changes nothing; routers and clients send them as defaults.
_OFF = (False, "", [], {})
_UNSUPPORTED_PENALTIES: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "logit_bias": _OFF,
}
UNSUPPORTED_SGLANG = _UNSUPPORTED_PENALTIES | {
    "min_new_tokens": (0,),
    "json_schema": _OFF,
    "regex": _OFF,
    "ebnf": _OFF,
    "structural_tag": _OFF,
    "stop_regex": _OFF,
    "n": (1,),
}
UNSUPPORTED_OPENAI = _UNSUPPORTED_PENALTIES | {
    "min_tokens": (0,),
    "json_schema": _OFF,
    "regex": _OFF,
    "ebnf": _OFF,
    "stop_regex": _OFF,
    "lora_path": _OFF,
    "response_format": ({"type": "text"},),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest:
    """What the engine loop is told, and what the server does itself with the text."""

    params: SamplingParams
    keep_stop: bool = False  # SGLang's `no_stop_trim`: leave the stop string or token in the text
    skip_special_tokens: bool = True


def read_sglang_sampling(fields: Fields) -> SamplingRequest:
    """Read one `sampling_params` object; absent fields take SGLang's defaults."""
    fields.refuse(UNSUPPORTED_SGLANG)
    max_new_tokens = fields.integer("max_new_tokens", minimum=1, maximum=MAX_NEW_TOKENS)
    return _read_sampling(fields, max_new_tokens=128 if max_new_tokens is None else max_new_tokens)


def read_openai_sampling(fields: Fields, *, max_new_tokens: int) -> SamplingRequest:
    """Read the sampling fields at the top level of an OpenAI body, with SGLang's extensions."""
    fields.refuse(UNSUPPORTED_OPENAI)
    return _read_sampling(fields, max_new_tokens=max_new_tokens)


def _read_sampling(fields: Fields, *, max_new_tokens: int) -> SamplingRequest:
    temperature = fields.number("temperature", minimum=0, maximum=MAX_TEMPERATURE)
    seed = fields.integer("sampling_seed", minimum=-MAX_SEED, maximum=MAX_SEED)
    if seed is None:
        seed = fields.integer("seed", minimum=-MAX_SEED, maximum=MAX_SEED)
    params = SamplingParams(
        max_new_tokens=max_new_tokens,
        temperature=1.0 if temperature is None else temperature,
        top_p=_top_p(fields),
        top_k=_top_k(fields),
        seed=seed,
        stop=_stop_strings(fields),
        stop_token_ids=_stop_token_ids(fields),
        ignore_eos=fields.flag("ignore_eos"),
    )
    return SamplingRequest(
        params=params,
        keep_stop=fields.flag("no_stop_trim"),
        skip_special_tokens=fields.flag("skip_special_tokens", default=True),
    )


def _top_p(fields: Fields) -> float:
    value = fields.number("top_p", minimum=0, maximum=1)
    if value == 0:
        raise fields.wrong("top_p", "a number above 0 and at most 1")
    return 1.0 if value is None else value


def _top_k(fields: Fields) -> int | None:
    """SGLang's -1 keeps the whole vocabulary."""
    value = fields.integer("top_k", minimum=-1, maximum=_MAX_TOP_K)
    if value == 0:
        raise fields.wrong("top_k", "-1 for the whole vocabulary, or at least 1")
    return None if value == -1 else value


def _stop_strings(fields: Fields) -> tuple[str, ...]:
    value = fields.raw("stop")
    if value is None:
        return ()
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(text, str) and text for text in strings):
        raise fields.wrong("stop", "a string or a list of strings, none of them empty")
    if len(strings) > MAX_STOP_STRINGS:
        raise RequestError(
            f"`{fields.name_of('stop')}` has {len(strings)} strings, wanted at most {MAX_STOP_STRINGS}",
            param=fields.name_of("stop"),
        )
    num_chars = sum(map(len, strings))
    if num_chars > MAX_STOP_CHARS:
        raise RequestError(
            f"`{fields.name_of('stop')}` has {num_chars} characters in all, wanted at most {MAX_STOP_CHARS}",
            param=fields.name_of("stop"),
        )
    return tuple(strings)


def _stop_token_ids(fields: Fields) -> tuple[int, ...]:
    value = fields.raw("stop_token_ids")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(is_integer(token) and token >= 0 for token in value):
        raise fields.wrong("stop_token_ids", "a list of token ids")
    if len(value) > MAX_STOP_TOKEN_IDS:
        raise RequestError(
            f"`{fields.name_of('stop_token_ids')}` has {len(value)} ids, wanted at most {MAX_STOP_TOKEN_IDS}",
            param=fields.name_of("stop_token_ids"),
        )
    return tuple(value)
