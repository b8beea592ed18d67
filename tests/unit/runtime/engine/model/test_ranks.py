"""One model over several ranks computes what it computes on one: real gloo between threads, each a rank.

The judge is the model on a single rank, which other tests compare with transformers.
"""

from __future__ import annotations

import pytest
import torch

from runtime.engine.compute import Chunk
from runtime.engine.model.errors import ModelError
from runtime.engine.ranks.meeting import rank_shape
from runtime.engine.runner import load_runner
from runtime.engine.settings import parse_settings

_TOLERANCE = 2e-5  # of float32 sums in another order, relative to the largest logit


def _close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return float((ours - theirs).abs().max()) < _TOLERANCE * float(theirs.abs().max())


_LATENT = ["deepseek-v2-groups", "deepseek-v3", "deepseek-v3-biased-halves"]
_NAMES = ["llama", "llama-biased-linear-rope", "llama-tied-llama3-rope", "qwen2", "qwen3", *_LATENT]


@pytest.mark.parametrize("name", _NAMES)
def test_tensor_parallel_ranks_give_the_logits_of_one(
    tiny_model, make_runner, run_on_ranks, random_prompt, name
):
    folder = tiny_model(name).folder
    chunks = [Chunk(random_prompt(n, n), 0, (2 * n, 2 * n + 1)) for n in (5, 20, 1)]
    (logits,) = run_on_ranks(folder, [chunks], "--tp-size", "2")
    assert _close(logits, make_runner(folder).forward(chunks))


def test_more_ranks_than_kv_heads_hold_copies(tiny_model, make_runner, run_on_ranks, random_prompt):
    folder = tiny_model("qwen3").folder
    chunks = [Chunk(random_prompt(30, 1), 0, (3, 4)), Chunk(random_prompt(9, 2), 0, (1,))]
    (logits,) = run_on_ranks(folder, [chunks], "--tp-size", "6")
    assert _close(logits, make_runner(folder).forward(chunks))


@pytest.mark.parametrize(("tp_size", "ep_size"), [("2", "2"), ("4", "2"), ("6", "3")])
def test_experts_are_dealt_out_to_ranks(
    tiny_model, make_runner, run_on_ranks, random_prompt, tp_size, ep_size
):
    """Also where several ranks share the columns of each expert; 8 experts in 3 groups are uneven."""
    folder = tiny_model("deepseek-v3").folder
    chunks = [Chunk(random_prompt(30, 1), 0, (3, 4)), Chunk(random_prompt(9, 2), 0, (1,))]
    flags = ("--tp-size", tp_size, "--ep-size", ep_size, "--attn-dp-size", "2" if tp_size == "4" else "1")
    (logits,) = run_on_ranks(folder, [chunks], *flags)
    assert _close(logits, make_runner(folder).forward(chunks))


@pytest.mark.parametrize("name", ["llama-biased-linear-rope", "deepseek-v3-biased-halves"])
@pytest.mark.parametrize("flags", [("2", "2"), ("4", "2")])
def test_attention_data_parallel_ranks_each_serve_their_own(
    tiny_model, make_runner, run_on_ranks, random_prompt, name, flags
):
    """Three steps: both groups, the second alone, the first alone; each with a past in its own pool."""
    folder, (tp_size, attn_dp_size) = tiny_model(name).folder, flags
    one, two = random_prompt(25, 1), random_prompt(12, 2)
    steps = [
        [Chunk(one[:17], 0, (3, 9), 0), Chunk(two[:5], 0, (3,), 1)],
        [Chunk(two[5:], 5, (3,), 1)],
        [Chunk(one[17:], 17, (3, 9), 0)],
    ]
    answers = run_on_ranks(folder, steps, "--tp-size", tp_size, "--attn-dp-size", attn_dp_size)
    alone = make_runner(folder)
    wanted = [alone.forward([Chunk(prompt, 0, (5, 6))])[0] for prompt in (one, two)]
    assert _close(answers[2][0], wanted[0])
    assert _close(answers[1][0], wanted[1])


@pytest.mark.parametrize(
    ("tp_size", "words"),
    [
        (4, "6 query heads cannot be shared evenly by 4 attention ranks"),
        (3, "2 KV heads cannot be spread evenly over 3 attention ranks"),
    ],
)
def test_heads_that_cannot_be_shared_are_counted(tiny_model, tp_size, words):
    flags = ["--model-path", str(tiny_model("llama").folder), "--max-total-tokens", "64"]
    settings = parse_settings([*flags, "--tp-size", str(tp_size)])
    with pytest.raises(ModelError, match=words):
        load_runner(settings, rank_shape(settings))
