"""Decode and prefill speed of the reference engine beside transformers, same weights, same process, by turns.

    python -m benchmarks.engine_vs_transformers --json out.json

Turns alternate, so that a slow minute of the machine hurts both; the best turn of each counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, cast

import torch
import transformers
from torch import Tensor

from runtime.engine.compute import Chunk
from runtime.engine.model.checkpoint import open_checkpoint
from runtime.engine.runner import ModelRunner, load_runner
from runtime.engine.settings import parse_settings

_PAGE_SIZE = 16
_DECODE_PROMPT_LEN = 64


class Subject(Protocol):
    """Something that generates greedily."""

    def prefill_s(self, prompts: Sequence[Sequence[int]]) -> float:
        """Seconds from the prompts to their first tokens."""
        ...

    def decode_s(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> float:
        """Seconds from the first tokens to `num_tokens` more of each sequence."""
        ...


class Generates(Protocol):
    """The one method of a model of transformers that is called; the type checker cannot find it there."""

    def generate(self, inputs: Tensor, **options: object) -> Tensor: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    dtype: str
    what: str
    engine_tokens_per_s: float
    transformers_tokens_per_s: float

    @property
    def ratio(self) -> float:
        return self.engine_tokens_per_s / self.transformers_tokens_per_s


class ReferenceEngine:
    """The runner alone, no server: greedy choice by argmax, as transformers does."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner

    def prefill_s(self, prompts: Sequence[Sequence[int]]) -> float:
        started = time.perf_counter()
        self._first_tokens(prompts, self._pages(prompts, 1))
        return time.perf_counter() - started

    def decode_s(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> float:
        pages = self._pages(prompts, num_tokens + 1)
        tokens = self._first_tokens(prompts, pages)
        started = time.perf_counter()
        for step in range(num_tokens):
            chunks = [
                Chunk(token_ids=(token,), start_pos=len(prompt) + step, pages=own)
                for token, prompt, own in zip(tokens, prompts, pages, strict=True)
            ]
            tokens = self._runner.forward(chunks).argmax(dim=-1).tolist()
        return time.perf_counter() - started

    def _first_tokens(self, prompts: Sequence[Sequence[int]], pages: Sequence[tuple[int, ...]]) -> list[int]:
        chunks = [
            Chunk(token_ids=tuple(prompt), start_pos=0, pages=own)
            for prompt, own in zip(prompts, pages, strict=True)
        ]
        return self._runner.forward(chunks).argmax(dim=-1).tolist()

    def _pages(self, prompts: Sequence[Sequence[int]], num_new: int) -> list[tuple[int, ...]]:
        num_pages = -(-(len(prompts[0]) + num_new) // _PAGE_SIZE)
        return [tuple(range(row * num_pages, (row + 1) * num_pages)) for row in range(len(prompts))]


class Transformers:
    """`generate` as its users call it: batched, cached, its own default attention (SDPA)."""

    def __init__(self, model: Generates) -> None:
        self._model = model

    def prefill_s(self, prompts: Sequence[Sequence[int]]) -> float:
        started = time.perf_counter()
        return self._token_times(prompts, 1)[0] - started

    def decode_s(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> float:
        times = self._token_times(prompts, num_tokens + 1)
        return times[-1] - times[0]

    def _token_times(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[float]:
        clock = _TokenClock()
        self._model.generate(
            torch.tensor(prompts),
            attention_mask=torch.ones(len(prompts), len(prompts[0]), dtype=torch.int64),
            max_new_tokens=num_tokens,
            do_sample=False,
            stopping_criteria=transformers.StoppingCriteriaList([clock]),
        )
        return clock.times_s


class _TokenClock(transformers.StoppingCriteria):
    """Notes when each token is there, and stops nothing."""

    def __init__(self) -> None:
        self.times_s: list[float] = []

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: object) -> Tensor:  # pyright: ignore
        self.times_s.append(time.perf_counter())
        return torch.zeros(len(input_ids), dtype=torch.bool)


def main(argv: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(argv)
    torch.set_num_threads(options.num_threads)
    transformers.logging.set_verbosity_error()
    results = [result for dtype in options.dtypes for result in _measure(options, dtype)]
    conditions = {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": options.num_threads,
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "rounds": options.rounds,
    }
    _print_table(results, conditions)
    if options.json is not None:
        rows = [asdict(result) | {"ratio": result.ratio} for result in results]
        options.json.write_text(json.dumps({"conditions": conditions, "results": rows}, indent=2) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model-path", default="builtin:smollm2-135m-instruct", help="a Llama model")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], metavar="DTYPE")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8], metavar="N")
    parser.add_argument("--prefill-lens", nargs="+", type=int, default=[512], metavar="TOKENS")
    parser.add_argument("--num-tokens", type=int, default=32, help="decoded per sequence and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--num-threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write the figures and their conditions there")
    return parser


def _measure(options: argparse.Namespace, dtype: str) -> list[Result]:
    flags = ["--model-path", options.model_path, "--dtype", dtype, "--max-total-tokens", "8192"]
    runner = load_runner(parse_settings([*flags, "--page-size", str(_PAGE_SIZE)]))
    engine, theirs = ReferenceEngine(runner), Transformers(_same_model(options.model_path, runner.pool.dtype))
    results: list[Result] = []
    for batch in options.batches:
        prompts = _prompts(runner, batch, _DECODE_PROMPT_LEN)
        seconds = _best_of(options.rounds, engine, theirs, lambda s: s.decode_s(prompts, options.num_tokens))  # noqa: B023
        results.append(_result(dtype, f"decode, batch {batch}", batch * options.num_tokens, seconds))
    for prompt_len in options.prefill_lens:
        prompts = _prompts(runner, 1, prompt_len)
        seconds = _best_of(options.rounds, engine, theirs, lambda s: s.prefill_s(prompts))  # noqa: B023
        results.append(_result(dtype, f"prefill, {prompt_len} tokens", prompt_len, seconds))
    return results


def _best_of(
    rounds: int, engine: Subject, theirs: Subject, measure: Callable[[Subject], float]
) -> tuple[float, float]:
    for subject in (engine, theirs):
        measure(subject)  # the first turn pays for lazy initialisation
    turns = [(measure(engine), measure(theirs)) for _ in range(rounds)]
    gc.collect()
    return min(ours for ours, _ in turns), min(other for _, other in turns)


def _result(dtype: str, what: str, num_tokens: int, seconds: tuple[float, float]) -> Result:
    ours, theirs = (num_tokens / second for second in seconds)
    return Result(dtype=dtype, what=what, engine_tokens_per_s=ours, transformers_tokens_per_s=theirs)


def _prompts(runner: ModelRunner, batch: int, prompt_len: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(batch)
    return torch.randint(100, runner.config.vocab_size, (batch, prompt_len), generator=generator).tolist()


def _same_model(model_path: str, dtype: torch.dtype) -> Generates:
    """A LlamaForCausalLM with the weights of the same file."""
    checkpoint = open_checkpoint(model_path)
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
            tie_word_embeddings=config.has_tied_embeddings,
        )
    )
    names = [
        name for name in model.state_dict() if name != "lm_head.weight" or not config.has_tied_embeddings
    ]
    model.load_state_dict({name: checkpoint.source.read(name) for name in names}, strict=False)
    model.tie_weights()
    assert model.generation_config is not None
    model.generation_config.eos_token_id = None  # never stops early
    return cast(Generates, cast(torch.nn.Module, model).to(dtype).eval())


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _print_table(results: Sequence[Result], conditions: dict[str, object]) -> None:
    print(", ".join(f"{name} {value}" for name, value in conditions.items()))
    print(f"{'dtype':10} {'what':22} {'engine tok/s':>13} {'transformers':>13} {'ratio':>6}")
    for result in results:
        print(
            f"{result.dtype:10} {result.what:22} {result.engine_tokens_per_s:13.1f}"
            f" {result.transformers_tokens_per_s:13.1f} {result.ratio:6.2f}"
        )


if __name__ == "__main__":
    main()
