"""From logits to the next token of each request: greedy, or drawn by temperature, top-k and top-p.

A draw depends on the request's row, seed and position, never on the batch it runs in or on earlier draws:
a request that is retracted and computed anew goes on as before.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.engine.live import LiveRequest, Sampled
from runtime.engine.request import SamplingParams, TokenLogprob


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What one request wants of its row of logits."""

    params: SamplingParams
    step: int  # tokens generated before this one
    num_top_logprobs: int | None = None  # None: no logprob at all


class TokenSampler:
    """The engine's sampler; its own generator serves the requests that bring no seed."""

    def __init__(self, random_seed: int) -> None:
        self._generator = random.Random(random_seed)

    def sample(self, logits: Tensor, requests: Sequence[LiveRequest]) -> list[Sampled]:
        draws = [
            Draw(
                params=live.request.sampling,
                step=live.num_generated,
                num_top_logprobs=live.request.num_top_logprobs,
            )
            for live in requests
        ]
        return sample_tokens(logits, draws, self._generator)


@torch.inference_mode()
def sample_tokens(logits: Tensor, draws: Sequence[Draw], generator: random.Random) -> list[Sampled]:
    """Choose one token per row.

    logits: [B, vocab] float32, read only; draws: one per row
    """
    token_ids: list[int] = logits.argmax(dim=-1).tolist()
    for row, draw in enumerate(draws):
        if not draw.params.is_greedy:
            token_ids[row] = draw_token(logits[row], draw.params, _uniform(draw, generator))
    return [
        Sampled(token_id=token_id, logprob=_logprob(logits[row], token_id, draw.num_top_logprobs))
        for row, (token_id, draw) in enumerate(zip(token_ids, draws, strict=True))
    ]


def draw_token(logits: Tensor, params: SamplingParams, uniform: float) -> int:
    """Find the token at `uniform` of the cumulative distribution that the parameters leave over.

    Top-k and top-p both look at the distribution after temperature, as in SGLang: top-p keeps the most
    probable tokens up to and including the one that reaches it, and counts what top-k cuts off, too.

    logits: [vocab] float32; uniform: in [0, 1)
    """
    # Less the maximum first: a tiny temperature then gives -inf for the others, not inf - inf.
    probabilities = ((logits - logits.max()) / params.temperature).softmax(dim=-1)
    if params.top_k is None and params.top_p >= 1.0:
        return _pick(probabilities, uniform)
    num_kept = len(probabilities) if params.top_k is None else min(params.top_k, len(probabilities))
    sorted_probabilities, token_ids = probabilities.topk(num_kept)
    before = sorted_probabilities.cumsum(dim=-1) - sorted_probabilities
    kept = sorted_probabilities.masked_fill(before >= params.top_p, 0.0)
    kept[0] = sorted_probabilities[0]  # a top-p of 0 still leaves one
    return int(token_ids[_pick(kept, uniform)])


def _pick(weights: Tensor, uniform: float) -> int:
    """Give the index at `uniform` of the weights' cumulative sum; float64 for small tails."""
    cumulative = weights.double().cumsum(dim=-1)
    target = cumulative[-1:] * uniform
    return min(int(torch.searchsorted(cumulative, target, right=True)), len(weights) - 1)


def _uniform(draw: Draw, generator: random.Random) -> float:
    if draw.params.seed is None:
        return generator.random()
    # A fresh generator per token needs no state that would have to follow the request.
    return random.Random(f"{draw.params.seed}/{draw.step}").random()


def _logprob(logits: Tensor, token_id: int, num_top: int | None) -> TokenLogprob | None:
    """Logarithms of the model's own distribution, before temperature and cuts. logits: [vocab]"""
    if num_top is None:
        return None
    logprobs = logits.log_softmax(dim=-1)
    values, token_ids = logprobs.topk(min(num_top, len(logprobs)))
    return TokenLogprob(
        token_id=token_id,
        logprob=float(logprobs[token_id]),
        top=tuple(zip(token_ids.tolist(), values.tolist(), strict=True)),
    )
