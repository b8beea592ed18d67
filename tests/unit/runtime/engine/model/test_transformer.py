"""What the engine computes is what transformers computes, however the work is cut and laid out."""

from __future__ import annotations

import pytest
import torch

from runtime.engine.compute import Chunk

LATENT = ["deepseek-v2", "deepseek-v2-groups", "deepseek-v3", "deepseek-v3-biased-halves"]
ALL = ["llama", "llama-tied-llama3-rope", "llama-biased-linear-rope", "qwen2", "qwen3", *LATENT]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("prompt_len", [1, 2, 17, 130])
def test_greedy_tokens_equal_those_of_transformers(
    tiny_model, make_runner, random_prompt, new_sequence, greedy, name, prompt_len
):
    model, prompt = tiny_model(name), random_prompt(prompt_len, 1)
    wanted = model.greedy(prompt, 24)
    assert len(set(wanted)) > 3, "an answer that repeats itself would prove little"
    assert greedy(make_runner(model.folder), new_sequence(prompt, range(3, 40)), 24) == wanted


@pytest.mark.parametrize("name", ALL)
def test_logits_are_close_to_those_of_transformers(tiny_model, make_runner, random_prompt, name):
    model, prompt = tiny_model(name), random_prompt(100, 2)
    logits = make_runner(model.folder).forward([Chunk(token_ids=prompt, start_pos=0, pages=tuple(range(10)))])
    wanted = model.logits(prompt)
    assert logits.dtype == torch.float32
    assert (logits[0] - wanted).norm() / wanted.norm() < 1e-4


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("chunk_lens", [(7, 1, 33, 2), (16, 16), (1, 1, 1), (64,)])
def test_chunked_prefill_at_odd_boundaries_changes_nothing(
    tiny_model, make_runner, random_prompt, new_sequence, greedy, page_size, chunk_lens
):
    model, prompt = tiny_model("llama"), random_prompt(75, 3)
    runner = make_runner(model.folder, "--page-size", str(page_size))
    sequence = new_sequence(prompt, range(5, 5 + -(-100 // page_size)))
    assert greedy(runner, sequence, 20, chunk_lens=chunk_lens) == model.greedy(prompt, 20)


@pytest.mark.parametrize("page_size", [1, 16])
def test_scattered_pages_give_the_same_tokens_as_neighbours(
    tiny_model, make_runner, random_prompt, new_sequence, greedy, page_size
):
    model, prompt = tiny_model("qwen3"), random_prompt(50, 4)
    runner = make_runner(model.folder, "--page-size", str(page_size))
    order = torch.randperm(1024 // page_size, generator=torch.Generator().manual_seed(5)).tolist()
    sequence = new_sequence(prompt, order[: -(-80 // page_size)])
    assert greedy(runner, sequence, 20, chunk_lens=(13, 20)) == model.greedy(prompt, 20)


@pytest.mark.parametrize("name", ALL)
def test_prefill_and_decode_of_many_sequences_share_a_step(
    tiny_model, make_runner, random_prompt, new_sequence, name
):
    """Sequences join one after the other, prompts in chunks of 11, all that runs in one forward."""
    model, runner = tiny_model(name), make_runner(tiny_model(name).folder)
    prompts = [random_prompt(length, 10 + length) for length in (40, 1, 23, 60, 12)]
    wanted = [model.greedy(prompt, 12) for prompt in prompts]
    sequences = [new_sequence(prompt, range(8 * i, 8 * i + 8)) for i, prompt in enumerate(prompts)]
    running = []
    waiting = list(zip(sequences, prompts, strict=True))
    while waiting or running:
        running += [waiting.pop(0)] if waiting else []
        lens = [min(11, len(sequence.token_ids) - sequence.num_computed) for sequence, _ in running]
        chunks = [sequence.chunk(num) for (sequence, _), num in zip(running, lens, strict=True)]
        logits = runner.forward(chunks)
        assert logits.shape == (len(chunks), model.oracle.config.vocab_size)
        for row, (sequence, _) in enumerate(running):
            if sequence.num_computed == len(sequence.token_ids):
                sequence.token_ids.append(int(logits[row].argmax()))
        running = [(s, p) for s, p in running if len(s.token_ids) < len(p) + 12]
    answers = [sequence.token_ids[len(prompt) :] for sequence, prompt in zip(sequences, prompts, strict=True)]
    assert answers == wanted


def test_a_step_writes_only_the_slots_of_its_own_tokens(tiny_model, make_runner, random_prompt):
    runner = make_runner(tiny_model("llama").folder, "--page-size", "4")
    runner.pool.tensor.fill_(7.0)
    runner.forward([Chunk(token_ids=random_prompt(6, 1), start_pos=0, pages=(9, 2))])
    is_written = (runner.pool.tensor != 7.0).any(dim=-1).any(dim=-1)  # [L, 2, P, S]
    wanted = torch.zeros_like(is_written)
    wanted[:, :, 9, :] = True
    wanted[:, :, 2, :2] = True
    assert torch.equal(is_written, wanted)


def test_kv_computed_in_one_pool_serves_a_decode_in_another(
    tiny_model, make_runner, random_prompt, new_sequence, greedy
):
    """What a transfer moves is all that a decode instance needs."""
    model, prompt = tiny_model("qwen2"), random_prompt(37, 6)
    prefill, decode = make_runner(model.folder), make_runner(model.folder)
    logits = prefill.forward([Chunk(token_ids=prompt, start_pos=0, pages=(1, 2, 3))])
    decode.pool.tensor[:, :, 10:13] = prefill.pool.tensor[:, :, 1:4]
    sequence = new_sequence([*prompt, int(logits[0].argmax())], range(10, 16))
    sequence.num_computed = len(prompt)
    assert greedy(decode, sequence, 10) == model.greedy(prompt, 11)[1:]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("num_sequences", [1, 3, 40])
def test_half_precision_stays_near_float32(tiny_model, make_runner, random_prompt, dtype, num_sequences):
    model = tiny_model("llama")
    runner = make_runner(model.folder, "--dtype", dtype, "--page-size", "8")
    prompts = [random_prompt(3, seed) for seed in range(num_sequences)]
    logits = runner.forward(
        [Chunk(token_ids=prompt, start_pos=0, pages=(page,)) for page, prompt in enumerate(prompts)]
    )
    wanted = torch.stack([model.logits(prompt) for prompt in prompts])
    assert (logits - wanted).norm() / wanted.norm() < (0.05 if dtype == "bfloat16" else 0.01)
