"""Draws follow the distribution that the parameters leave, and a seed fixes them whatever the batch."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtime.engine.request import SamplingParams
from runtime.engine.sampling import Draw, draw_token, sample_tokens

PROBABILITIES = torch.tensor([0.05, 0.4, 0.1, 0.3, 0.15])
LOGITS = PROBABILITIES.log() + 3.0


def _draw(step: int = 0, num_top: int | None = None, **params) -> Draw:
    return Draw(params=SamplingParams(**params), step=step, num_top_logprobs=num_top)


def _tokens(draws: list[Draw], logits: torch.Tensor | None = None, seed: int = 0) -> list[int]:
    rows = LOGITS.expand(len(draws), -1) if logits is None else logits
    return [sampled.token_id for sampled in sample_tokens(rows, draws, random.Random(seed))]


def _reachable(**params) -> set[int]:
    """All tokens that an even sweep over [0, 1) can give."""
    return {draw_token(LOGITS, SamplingParams(**params), i / 2000) for i in range(2000)}


def test_temperature_zero_and_top_k_one_take_the_best():
    assert _tokens([_draw(temperature=0.0), _draw(top_k=1)]) == [1, 1]


def test_shares_of_a_sweep_are_the_probabilities():
    counts = Counter(draw_token(LOGITS, SamplingParams(), i / 10_000) for i in range(10_000))
    assert [counts[token] / 10_000 for token in range(5)] == pytest.approx(PROBABILITIES.tolist(), abs=1e-3)


def test_temperature_sharpens_and_flattens():
    for temperature in (0.5, 2.0):
        wanted = PROBABILITIES.pow(1 / temperature)
        wanted /= wanted.sum()
        params = SamplingParams(temperature=temperature)
        counts = Counter(draw_token(LOGITS, params, i / 10_000) for i in range(10_000))
        assert [counts[t] / 10_000 for t in range(5)] == pytest.approx(wanted.tolist(), abs=1e-3)


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ({"top_k": 2}, {1, 3}),
        ({"top_k": 100}, {0, 1, 2, 3, 4}),
        ({"top_p": 0.0}, {1}),
        ({"top_p": 0.39}, {1}),
        ({"top_p": 0.5}, {1, 3}),
        ({"top_p": 0.84}, {1, 3, 4}),
        ({"top_p": 0.9999}, {0, 1, 2, 3, 4}),
        ({"top_k": 4, "top_p": 0.5}, {1, 3}),
        ({"top_k": 2, "top_p": 0.9}, {1, 3}),
    ],
)
def test_cuts_leave_the_most_probable_tokens(params, wanted):
    assert _reachable(**params) == wanted


def test_what_a_cut_leaves_keeps_its_proportions():
    counts = Counter(draw_token(LOGITS, SamplingParams(top_k=2), i / 7_000) for i in range(7_000))
    assert counts[1] / 7_000 == pytest.approx(4 / 7, abs=1e-3)


@pytest.mark.parametrize("temperature", [1e-30, 1e-6])
def test_a_tiny_temperature_is_greedy_not_nan(temperature):
    assert _tokens([_draw(temperature=temperature, seed=seed) for seed in range(5)]) == [1] * 5


def test_a_seed_gives_the_same_tokens_in_every_batch():
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(6, 300, generator=generator)
    draws = [_draw(seed=seed, step=seed, temperature=1.5) for seed in range(6)]
    alone = [_tokens([draw], logits[row : row + 1])[0] for row, draw in enumerate(draws)]
    assert _tokens(draws, logits) == alone
    assert _tokens(draws[::-1], logits.flip(0)) == alone[::-1]


def test_steps_and_seeds_draw_differently():
    flat = torch.zeros(1, 5000)
    by_step = {_tokens([_draw(seed=1, step=step)], flat)[0] for step in range(20)}
    by_seed = {_tokens([_draw(seed=seed)], flat)[0] for seed in (-1, 0, 1, 2**40, 2**63)}
    assert len(by_step) >= 19
    assert len(by_seed) == 5


def test_requests_without_a_seed_use_the_engines_generator():
    flat = torch.zeros(8, 5000)
    draws = [_draw() for _ in range(8)]
    assert _tokens(draws, flat, seed=1) == _tokens(draws, flat, seed=1)
    assert _tokens(draws, flat, seed=1) != _tokens(draws, flat, seed=2)
    assert len(set(_tokens(draws, flat))) > 6


def test_logprobs_are_of_the_model_before_temperature_and_cuts():
    draws = [_draw(temperature=0.0, num_top=2), _draw(temperature=0.2, top_k=1, num_top=0), _draw(seed=1)]
    first, second, third = sample_tokens(LOGITS.expand(3, -1), draws, random.Random(0))
    assert first.logprob is not None
    assert second.logprob is not None
    assert first.logprob.logprob == pytest.approx(math.log(0.4), abs=1e-5)
    assert [token for token, _ in first.logprob.top] == [1, 3]
    assert first.logprob.top[1][1] == pytest.approx(math.log(0.3), abs=1e-5)
    assert (second.logprob.logprob, second.logprob.top) == (first.logprob.logprob, ())
    assert third.logprob is None


def test_more_top_logprobs_than_tokens_gives_all():
    (sampled,) = sample_tokens(LOGITS[None], [_draw(num_top=50, temperature=0.0)], random.Random(0))
    assert sampled.logprob is not None
    assert len(sampled.logprob.top) == 5


@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=50),
    st.floats(1e-3, 10.0),
    st.floats(0.0, 1.0),
    st.one_of(st.none(), st.integers(1, 60)),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_every_draw_is_one_of_the_best(logits, temperature, top_p, top_k, uniform):
    row = torch.tensor(logits, dtype=torch.float32)
    params = SamplingParams(temperature=temperature, top_p=top_p, top_k=top_k)
    token = draw_token(row, params, uniform)
    num_better = int((row > row[token]).sum())
    assert 0 <= token < len(logits)
    assert top_k is None or num_better < top_k
