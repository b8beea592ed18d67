"""Heads of zeros let more ranks share a model, and change nothing of what it computes."""

from __future__ import annotations

import pytest
import torch

from runtime.engine.compute import Chunk
from runtime.engine.model.errors import ModelError

_TOLERANCE = 2e-5  # of float32 sums in another order, relative to the largest logit


def _close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return float((ours - theirs).abs().max()) < _TOLERANCE * float(theirs.abs().max())


@pytest.mark.parametrize("name", ["llama-biased-linear-rope", "qwen2", "qwen3"])
@pytest.mark.parametrize("num_kv_heads", ["4", "8"])
def test_padded_heads_let_four_ranks_share_two_kv_heads_of_three_queries(
    tiny_model, make_runner, run_on_ranks, random_prompt, name, num_kv_heads
):
    folder = tiny_model(name).folder
    steps = [
        [Chunk(random_prompt(30, 1), 0, (3, 4, 5)), Chunk(random_prompt(9, 2), 0, (1,))],
        [Chunk((7,), 30, (3, 4, 5))],
    ]
    padded = run_on_ranks(folder, steps, "--tp-size", "4", "--pad-kv-heads", num_kv_heads)
    runner = make_runner(folder)
    assert all(_close(ours, runner.forward(chunks)) for ours, chunks in zip(padded, steps, strict=True))


def test_the_pool_has_room_for_the_padded_heads(tiny_model, make_runner):
    assert make_runner(tiny_model("llama").folder, "--pad-kv-heads", "5").pool.layout.num_kv_heads == 5


def test_fewer_heads_than_the_model_has_are_refused(tiny_model, make_runner):
    with pytest.raises(ModelError, match="--pad-kv-heads is 1, the model has 2 KV heads"):
        make_runner(tiny_model("llama").folder, "--pad-kv-heads", "1")


def test_a_latent_cache_has_no_heads_to_pad(tiny_model, make_runner):
    with pytest.raises(ModelError, match="this model's is latent"):
        make_runner(tiny_model("deepseek-v2").folder, "--pad-kv-heads", "8")
