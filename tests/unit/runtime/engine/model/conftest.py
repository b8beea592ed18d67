"""Tiny models with random weights, made by transformers, which is also the judge of what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.distributed import HashStore

from runtime.engine.compute import Chunk
from runtime.engine.ranks.comm import TorchComm
from runtime.engine.ranks.meeting import rank_shape
from runtime.engine.runner import ModelRunner, load_runner
from runtime.engine.settings import parse_settings

_SIZES: dict[str, Any] = {
    "vocab_size": 211,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "eos_token_id": 2,
    "bos_token_id": 1,
    "pad_token_id": 0,
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 10_000.0,
}
_LINEAR_ROPE = {"rope_type": "linear", "factor": 4.0, "rope_theta": 5_000.0}


def _llama(**changes: Any) -> transformers.PreTrainedModel:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**_SIZES | changes))


_LATENT: dict[str, Any] = {
    "num_key_value_heads": 6,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "moe_intermediate_size": 20,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "first_k_dense_replace": 1,
}


def _deepseek_v2(**changes: Any) -> transformers.PreTrainedModel:
    return transformers.DeepseekV2ForCausalLM(transformers.DeepseekV2Config(**_SIZES | _LATENT | changes))


def _deepseek_v3(**changes: Any) -> transformers.PreTrainedModel:
    groups = {"n_group": 4, "topk_group": 2, "q_lora_rank": 20}
    config = transformers.DeepseekV3Config(**_SIZES | _LATENT | groups | changes)
    model = transformers.DeepseekV3ForCausalLM(config)
    for name, bias in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            bias.normal_(0.0, 0.3)
    return model


_MAKERS: dict[str, Callable[[], transformers.PreTrainedModel]] = {
    "llama": lambda: _llama(tie_word_embeddings=False),
    "llama-tied-llama3-rope": lambda: _llama(tie_word_embeddings=True, rope_parameters=_LLAMA3_ROPE),
    "llama-biased-linear-rope": lambda: _llama(
        attention_bias=True, mlp_bias=True, rope_parameters=_LINEAR_ROPE
    ),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**_SIZES, tie_word_embeddings=True, rope_theta=1_000_000.0)
    ),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**_SIZES, head_dim=16, tie_word_embeddings=False)
    ),
    "deepseek-v2": lambda: _deepseek_v2(q_lora_rank=None, routed_scaling_factor=1.5),
    "deepseek-v2-groups": lambda: _deepseek_v2(
        q_lora_rank=20, topk_method="group_limited_greedy", n_group=4, topk_group=2
    ),
    "deepseek-v3": lambda: _deepseek_v3(),
    "deepseek-v3-biased-halves": lambda: _deepseek_v3(
        attention_bias=True, rope_interleave=False, norm_topk_prob=False, q_lora_rank=None
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyModel:
    folder: Path
    oracle: transformers.PreTrainedModel

    def greedy(self, prompt: Sequence[int], num_tokens: int) -> list[int]:
        """The continuation that transformers computes, from the whole context anew for every token."""
        token_ids = list(prompt)
        with torch.inference_mode():
            for _ in range(num_tokens):
                token_ids.append(int(self.oracle(torch.tensor([token_ids])).logits[0, -1].argmax()))
        return token_ids[len(prompt) :]

    def logits(self, prompt: Sequence[int]) -> torch.Tensor:
        with torch.inference_mode():
            return self.oracle(torch.tensor([list(prompt)])).logits[0, -1]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TinyModel]:
    """`tiny_model("qwen2")`: saved once per session."""
    made: dict[str, TinyModel] = {}

    def get(name: str) -> TinyModel:
        if name not in made:
            torch.manual_seed(sum(name.encode()))
            model = _MAKERS[name]().eval()
            # transformers' own scale (0.02) makes every answer the same token again and again.
            for parameter in model.parameters():
                parameter.data.normal_(0.0, 0.25) if parameter.dim() > 1 else parameter.data.uniform_(
                    0.5, 1.5
                )
            folder = tmp_path_factory.mktemp(name)
            model.save_pretrained(folder)
            made[name] = TinyModel(folder=folder, oracle=model)
        return made[name]

    return get


@pytest.fixture(scope="session")
def make_runner() -> Callable[..., ModelRunner]:
    def make(path: Path, *flags: str) -> ModelRunner:
        return load_runner(parse_settings(["--model-path", str(path), "--max-total-tokens", "1024", *flags]))

    return make


@pytest.fixture(scope="session")
def run_on_ranks() -> Callable[..., list[torch.Tensor]]:
    """`run_on_ranks(folder, steps, *flags)`: the leader's logits of each step, all ranks being threads."""

    def run(path: Path, steps: Sequence[Sequence[Chunk]], *flags: str) -> list[torch.Tensor]:
        settings = parse_settings(["--model-path", str(path), "--max-total-tokens", "1024", *flags])
        store = HashStore()

        def one(tp_rank: int) -> list[torch.Tensor]:
            shape = rank_shape(replace(settings, tp_rank=tp_rank))
            cpu = torch.device("cpu")
            comm = TorchComm(store, tp_rank, settings.tp_size, host="127.0.0.1", device=cpu)
            runner = load_runner(replace(settings, tp_rank=tp_rank), shape, comm)
            return [runner.forward(chunks) for chunks in steps]

        with ThreadPoolExecutor(settings.tp_size) as threads:
            return next(iter([*threads.map(one, range(settings.tp_size))]))

    return run


@pytest.fixture(scope="session")
def random_prompt() -> Callable[[int, int], tuple[int, ...]]:
    def make(num_tokens: int, seed: int) -> tuple[int, ...]:
        generator = torch.Generator().manual_seed(seed)
        return tuple(torch.randint(3, 211, (num_tokens,), generator=generator).tolist())

    return make


@dataclass(slots=True, kw_only=True)
class PooledSequence:
    """One sequence in the pool, advanced by hand."""

    token_ids: list[int]
    pages: tuple[int, ...]
    num_computed: int = 0

    def chunk(self, num_tokens: int) -> Chunk:
        """The next `num_tokens` uncomputed tokens."""
        start, end = self.num_computed, self.num_computed + num_tokens
        self.num_computed = end
        return Chunk(token_ids=tuple(self.token_ids[start:end]), start_pos=start, pages=self.pages)


@pytest.fixture(scope="session")
def new_sequence() -> Callable[..., PooledSequence]:
    def make(prompt: Sequence[int], pages: Sequence[int]) -> PooledSequence:
        return PooledSequence(token_ids=list(prompt), pages=tuple(pages))

    return make


@pytest.fixture(scope="session")
def greedy() -> Callable[..., list[int]]:
    """Prefill in chunks of the given lengths (the last takes the rest), then decode one token at a time."""

    def run(
        runner: ModelRunner, sequence: PooledSequence, num_tokens: int, *, chunk_lens: Sequence[int] = ()
    ) -> list[int]:
        prompt_len = len(sequence.token_ids)
        for chunk_len in chunk_lens:
            if sequence.num_computed + chunk_len < prompt_len:
                runner.forward([sequence.chunk(chunk_len)])
        while len(sequence.token_ids) < prompt_len + num_tokens:
            logits = runner.forward([sequence.chunk(len(sequence.token_ids) - sequence.num_computed)])
            sequence.token_ids.append(int(logits[0].argmax()))
        return sequence.token_ids[prompt_len:]

    return run
