from __future__ import annotations

import json

import pytest

from runtime.router.logprobs import merge_prompt_logprobs


def answer(*logprobs: float, text: str = "") -> dict[str, object]:
    return {"text": text, "meta_info": {"input_token_logprobs": [[value, 1, None] for value in logprobs]}}


def merge(prefill: object, decode: object) -> object:
    return json.loads(merge_prompt_logprobs(json.dumps(prefill).encode(), json.dumps(decode).encode()))


def test_logprobs_of_prefill_come_before_those_of_decode() -> None:
    assert merge(answer(-1, -2), answer(-3, text="x")) == answer(-1, -2, -3, text="x")


def test_logprobs_of_prefill_stand_where_decode_has_none() -> None:
    decode = {"text": "x", "meta_info": {"id": "1"}}
    merged = merge(answer(-1), decode)
    assert merged == {"text": "x", "meta_info": {"id": "1", "input_token_logprobs": [[-1, 1, None]]}}


def test_batches_are_joined_in_order() -> None:
    assert merge([answer(-1), answer(-2)], [answer(-3), answer(-4)]) == [answer(-1, -3), answer(-2, -4)]


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [([answer(-1)], [answer(-1), answer(-2)]), ({}, answer()), (answer(), {}), ("x", answer()), ([1], [2])],
)
def test_answers_that_do_not_fit_are_an_error(prefill: object, decode: object) -> None:
    with pytest.raises(ValueError, match=r"meta_info|shorter|longer"):
        merge(prefill, decode)
