"""Sampling parameters out of a body."""

from __future__ import annotations

import pytest

from runtime.engine.request import SamplingParams
from runtime.engine.server.errors import RequestError
from runtime.engine.server.fields import Fields
from runtime.engine.server.sampling_fields import read_openai_sampling, read_sglang_sampling


def test_absent_fields_take_sglangs_defaults():
    assert read_sglang_sampling(Fields({})).params == SamplingParams()


def test_every_field_arrives():
    request = read_sglang_sampling(
        Fields(
            {
                "max_new_tokens": 7,
                "temperature": 0.5,
                "top_p": 0.25,
                "top_k": 3,
                "sampling_seed": 11,
                "stop": ["x", "y"],
                "stop_token_ids": [4, 5],
                "ignore_eos": True,
                "no_stop_trim": True,
                "skip_special_tokens": False,
            }
        )
    )
    assert request.params == SamplingParams(
        max_new_tokens=7,
        temperature=0.5,
        top_p=0.25,
        top_k=3,
        seed=11,
        stop=("x", "y"),
        stop_token_ids=(4, 5),
        ignore_eos=True,
    )
    assert (request.keep_stop, request.skip_special_tokens) == (True, False)


def test_top_k_minus_one_keeps_the_vocabulary_and_one_stop_string_may_stand_alone():
    params = read_openai_sampling(Fields({"top_k": -1, "stop": "end", "seed": 3}), max_new_tokens=5).params
    assert (params.top_k, params.stop, params.seed, params.max_new_tokens) == (None, ("end",), 3, 5)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"max_new_tokens": 0}, "`sampling_params.max_new_tokens` is 0, wanted an integer from 1"),
        ({"max_new_tokens": 1.5}, "is 1.5, wanted an integer"),
        ({"max_new_tokens": True}, "is true, wanted an integer"),
        ({"temperature": -0.1}, "`sampling_params.temperature` is -0.1, wanted a number from 0"),
        ({"temperature": "hot"}, 'is "hot", wanted a number'),
        ({"top_p": 0}, "`sampling_params.top_p` is 0, wanted a number above 0"),
        ({"top_p": 1.01}, "wanted a number from 0 to 1"),
        ({"top_k": 0}, "`sampling_params.top_k` is 0, wanted -1"),
        ({"top_k": -2}, "wanted an integer from -1"),
        ({"seed": 2**64}, "wanted an integer"),
        ({"stop": ""}, "wanted a string or a list of strings, none of them empty"),
        ({"stop": ["a", 1]}, "`sampling_params.stop` is"),
        ({"stop": {"a": 1}}, "wanted a string or a list"),
        ({"stop": [f"s{i}" for i in range(257)]}, "has 257 strings, wanted at most 256"),
        ({"stop": ["s" * 65_537]}, "has 65537 characters in all, wanted at most 65536"),
        ({"stop_token_ids": [-1]}, "wanted a list of token ids"),
        ({"stop_token_ids": list(range(257))}, "has 257 ids, wanted at most 256"),
        ({"frequency_penalty": 0.5}, "`sampling_params.frequency_penalty` is not supported"),
        ({"min_p": 0.1}, "not supported by this engine, found 0.1"),
        ({"json_schema": "{}"}, "not supported"),
        ({"ignore_eos": 1}, "wanted true or false"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_found_and_wanted(values, words):
    with pytest.raises(RequestError) as caught:
        read_sglang_sampling(Fields(values, "sampling_params."))
    assert words in caught.value.message
    assert caught.value.status == 400


def test_ten_thousand_characters_and_a_hundred_stop_strings_are_fine():
    stops = ["x" * 10_000, *(f"stop{i}" for i in range(100))]
    assert len(read_sglang_sampling(Fields({"stop": stops})).params.stop) == 101


@pytest.mark.parametrize(
    "values",
    [{"frequency_penalty": 0.0}, {"repetition_penalty": 1}, {"logit_bias": {}}, {"response_format": None}],
)
def test_values_that_change_nothing_pass(values):
    read_openai_sampling(Fields(values), max_new_tokens=1)
