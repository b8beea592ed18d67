"""The embedded default model with its real weights, against transformers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

from runtime.engine.compute import Chunk
from runtime.engine.model.checkpoint import open_checkpoint
from runtime.engine.tokenizer import load_tokenizer
from runtime.models import resolve

pytestmark = pytest.mark.slow

MODEL = "builtin:smollm2-135m-instruct"
QUESTIONS = ["What is the capital of France?", "Write one sentence about the sea.", "2 + 2 ="]


@pytest.fixture(scope="module")
def path() -> Path:
    """Fetched like a user's; the other tests of it find it in the cache."""
    subprocess.run([sys.executable, "-m", "runtime.models", "pull", MODEL], check=True, capture_output=True)
    return resolve(MODEL)


@pytest.fixture(scope="module")
def oracle(path) -> transformers.PreTrainedModel:
    checkpoint = open_checkpoint(str(path))
    config = checkpoint.config
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            max_position_embeddings=config.max_position,
            rms_norm_eps=config.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=True,
        )
    )
    names = [name for name in model.state_dict() if name != "lm_head.weight"]
    model.load_state_dict({name: checkpoint.source.read(name) for name in names}, strict=False)
    model.tie_weights()
    assert model.generation_config is not None
    model.generation_config.eos_token_id = None  # both go on after the end: more tokens to compare
    return model.eval()


def test_greedy_answers_equal_those_of_transformers(path, oracle, make_runner, new_sequence, greedy):
    tokenizer, runner = load_tokenizer(str(path)), make_runner(path)
    assert tokenizer is not None
    for question in QUESTIONS:
        prompt = tokenizer.encode_chat([{"role": "user", "content": question}])
        wanted = oracle.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)
        assert greedy(runner, new_sequence(prompt, range(7, 30)), 24) == wanted[0, len(prompt) :].tolist()


def test_a_long_prompt_in_chunks_gives_the_logits_of_transformers(path, oracle, make_runner):
    prompt = torch.randint(20, 49_000, (700,), generator=torch.Generator().manual_seed(1)).tolist()
    runner = make_runner(path, "--page-size", "64")
    pages = tuple(range(3, 15))
    for start in range(0, 700, 300):
        chunk = Chunk(token_ids=tuple(prompt[start : start + 300]), start_pos=start, pages=pages)
        logits = runner.forward([chunk])
    with torch.inference_mode():
        wanted = oracle(torch.tensor([prompt]), logits_to_keep=1).logits[0]
    assert (logits - wanted).norm() / wanted.norm() < 1e-4


def test_the_answer_is_real_english(path, make_runner, new_sequence, greedy):
    """Loading wrong (query rows out of order, another theta) shows in the words, whoever is the judge."""
    tokenizer = load_tokenizer(str(path))
    assert tokenizer is not None
    prompt = tokenizer.encode("The capital of France is")
    assert prompt == [504, 3575, 282, 4649, 314]
    assert tokenizer.decode(greedy(make_runner(path), new_sequence(prompt, range(9)), 6)).startswith(
        " Paris."
    )


def test_the_tokenizer_equals_the_one_that_transformers_builds(path):
    ours = load_tokenizer(str(path))
    assert ours is not None
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in [
        "The 2024 edition, isn't it?",
        "  naïve  café\n\n你好 👋🏽",
        "<|im_start|>user\nx<|im_end|>",
    ]:
        assert ours.encode(text) == theirs.encode(text)
    chat = [{"role": "user", "content": "Hi"}]
    assert ours.encode_chat(chat) == theirs.apply_chat_template(
        chat, add_generation_prompt=True, return_dict=False
    )
