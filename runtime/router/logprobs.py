"""Joins the prompt's logprobs, which only prefill knows, with decode's answer."""

from __future__ import annotations

from typing import cast

import orjson

FIELD = "input_token_logprobs"


def merge_prompt_logprobs(prefill_body: bytes, decode_body: bytes) -> bytes:
    """Decode's `/generate` answer with `meta_info.input_token_logprobs` of prefill put before its own.

    A batch is a list of answers in the same order on both sides. Raises ValueError when the two do not fit.
    """
    prefill, decode = orjson.loads(prefill_body), orjson.loads(decode_body)
    if isinstance(decode, list) and isinstance(prefill, list):
        for prefill_answer, decode_answer in zip(prefill, decode, strict=True):
            _merge_one(prefill_answer, decode_answer)
    else:
        _merge_one(prefill, decode)
    return orjson.dumps(decode)


def _merge_one(prefill: object, decode: object) -> None:
    """Write the joined list into `decode`."""
    source, target = _meta(prefill, "prefill"), _meta(decode, "decode")
    of_prefill = source.get(FIELD)
    if isinstance(of_prefill, list):
        of_decode = target.get(FIELD)
        target[FIELD] = of_prefill + (of_decode if isinstance(of_decode, list) else [])


def _meta(answer: object, side: str) -> dict[str, object]:
    meta = cast(dict[str, object], answer).get("meta_info") if isinstance(answer, dict) else None
    if not isinstance(meta, dict):
        raise ValueError(f"the answer of {side} has no `meta_info`")  # noqa: TRY004 (a wrong value from the network)
    return cast(dict[str, object], meta)
