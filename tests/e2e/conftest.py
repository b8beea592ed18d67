"""Real engine processes around a tiny random model that is made here."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

_START_DEADLINE_S = 90.0
_HIDDEN, _LAYERS, _HEADS, _KV_HEADS, _HEAD_DIM, _MLP = 64, 2, 4, 2, 16, 128
_CHAT_TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)

# Signs of life that a slower machine shows and a faster one doesn't.
_OPTIONAL_LINES = re.compile(r"waiting for |localhost: (fetching|waiting)|preparing ")


@pytest.fixture(scope="session")
def masked() -> Callable[[str], list[str]]:
    """Lines without what differs from run to run: times, pids, sizes, the order of events."""

    def mask(text: str) -> list[str]:
        lines: list[str] = []
        for line in text.splitlines():
            if not line.strip() or _OPTIONAL_LINES.match(line):
                continue
            without_times = re.sub(r"\b\d+(\.\d+)?(ms|s|m|h)\b( \d+s\b)?", "T", line)
            lines.append(re.sub(r"\s+", " ", re.sub(r"\b\d+\b", "N", without_times)).strip())
        return sorted(lines)

    return mask


@dataclass(frozen=True)
class EngineProcess:
    """A started engine; `log` is what it has written so far."""

    process: subprocess.Popen[bytes]
    log_path: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        return self.process.wait(timeout_s)


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder: two layers of random weights, one token per byte, `<|end|>` ends a text."""
    folder = tmp_path_factory.mktemp("tiny-llama")
    vocab_size = _write_tokenizer(folder)
    _write_weights(folder, vocab_size)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": _HIDDEN,
        "intermediate_size": _MLP,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
        "head_dim": _HEAD_DIM,
        "max_position_embeddings": 16384,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": vocab_size - 1,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def start_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., EngineProcess]]:
    """`start_engine(*argv)` gives a ready engine on a free port; all are ended with the session."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str) -> EngineProcess:
        log_path = tmp_path_factory.mktemp("engine") / "output.log"
        process = _spawn(*argv, log_path=log_path)
        started.append(process)
        return EngineProcess(process, log_path, _wait_until_ready(process, log_path))

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def tiny_engine(start_engine: Callable[..., EngineProcess], tiny_llama: Path) -> EngineProcess:
    """One unified engine that the tests of a session share."""
    return start_engine(
        "--model-path", str(tiny_llama), "--served-model-name", "tiny", "--max-total-tokens", "65536"
    )


@pytest.fixture
def http(tiny_engine: EngineProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=tiny_engine.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def spawn_engine() -> Callable[..., subprocess.Popen[bytes]]:
    """`spawn_engine(*argv, log_path=...)` does not wait; the test ends the process."""
    return _spawn


@pytest.fixture(scope="session")
def run_engine_to_end() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run_engine_to_end(*argv)` for an engine that ends by itself."""

    def run(*argv: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            _command(*argv),
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    return run


def _spawn(*argv: str, log_path: Path) -> subprocess.Popen[bytes]:
    with log_path.open("wb") as log:
        return subprocess.Popen(_command("--port", "0", *argv), env=_environment(), stdout=log, stderr=log)


def _command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "runtime.engine", "--num-threads", "1", *argv]


def _environment() -> dict[str, str]:
    root = Path(__file__).resolve().parents[2]
    return os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def _wait_until_ready(process: subprocess.Popen[bytes], log_path: Path) -> int:
    """The port in the engine's `ready:` line."""
    ends = time.monotonic() + _START_DEADLINE_S
    while time.monotonic() < ends:
        log = log_path.read_text(errors="replace")
        for line in log.splitlines(keepends=True):
            if line.startswith("ready: ") and line.endswith("\n"):
                return int(line.split()[2].rpartition(":")[2])
        assert process.poll() is None, f"the engine ended with {process.returncode}:\n{log}"
        time.sleep(0.05)
    pytest.fail(f"the engine was not ready within {_START_DEADLINE_S} s:\n{log_path.read_text()}")


def _write_tokenizer(folder: Path) -> int:
    """The size of the vocabulary: 256 bytes and one special token."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "eos_token": "<|end|>",
        "chat_template": _CHAT_TEMPLATE,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return tokenizer.get_vocab_size()


def _write_weights(folder: Path, vocab_size: int) -> None:
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(7)

    def random(*shape: int, scale: float) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * scale

    tensors = {
        "model.embed_tokens.weight": random(vocab_size, _HIDDEN, scale=1.0),
        "model.norm.weight": torch.ones(_HIDDEN),
        "lm_head.weight": random(vocab_size, _HIDDEN, scale=0.5),
    }
    for layer in range(_LAYERS):
        prefix = f"model.layers.{layer}."
        tensors |= {
            prefix + "input_layernorm.weight": torch.ones(_HIDDEN),
            prefix + "post_attention_layernorm.weight": torch.ones(_HIDDEN),
            prefix + "self_attn.q_proj.weight": random(_HEADS * _HEAD_DIM, _HIDDEN, scale=0.2),
            prefix + "self_attn.k_proj.weight": random(_KV_HEADS * _HEAD_DIM, _HIDDEN, scale=0.2),
            prefix + "self_attn.v_proj.weight": random(_KV_HEADS * _HEAD_DIM, _HIDDEN, scale=0.2),
            prefix + "self_attn.o_proj.weight": random(_HIDDEN, _HEADS * _HEAD_DIM, scale=0.2),
            prefix + "mlp.gate_proj.weight": random(_MLP, _HIDDEN, scale=0.2),
            prefix + "mlp.up_proj.weight": random(_MLP, _HIDDEN, scale=0.2),
            prefix + "mlp.down_proj.weight": random(_HIDDEN, _MLP, scale=0.2),
        }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
