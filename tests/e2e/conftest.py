"""Real engine processes around a tiny random model that is made here."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
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


class ForkedProcess:
    """A child of `engine_forks.py`, with the methods of a `Popen` that tests use."""

    def __init__(self, pid: int, args: list[str], log_path: Path, ended: Future[int]) -> None:
        self.pid = pid
        self.args = args
        self.log_path = log_path
        self._ended = ended

    def poll(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    def wait(self, timeout: float | None = None) -> int:
        return self._ended.result(timeout)

    def send_signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended, and that is still to be told
            if not self._ended.done():
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class EngineForks:
    """`engine_forks.py` as its caller sees it: engines are processes of their own, imports are paid once."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("engine_forks.py")
        self._server = subprocess.Popen(
            [sys.executable, str(script)], env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._pids: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._ended: dict[int, Future[int]] = {}
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def start(self, *argv: str, log_path: Path) -> ForkedProcess:
        assert self._server.stdin is not None
        log_path.touch()
        args = ["--num-threads", "1", *argv]
        self._server.stdin.write(json.dumps({"argv": args, "log": str(log_path)}).encode() + b"\n")
        self._server.stdin.flush()
        pid = self._pids.get(timeout=_START_DEADLINE_S)
        return ForkedProcess(pid, args, log_path, self._ended[pid])

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._server.stdout is not None
        with self._server.stdout as lines:
            for line in lines:
                match json.loads(line):
                    case {"started": pid}:
                        self._ended[pid] = Future()
                        self._pids.put(pid)
                    case {"ended": pid, "exit_code": exit_code}:
                        self._ended.pop(pid).set_result(exit_code)


@dataclass(frozen=True)
class EngineProcess:
    """A started engine; `log` is what it has written so far."""

    process: ForkedProcess
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.process.log_path.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        return self.process.wait(timeout_s)


@dataclass(frozen=True)
class EndedEngine:
    returncode: int
    stderr: str


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
def engine_forks() -> Iterator[EngineForks]:
    forks = EngineForks()
    yield forks
    forks.close()


@pytest.fixture(scope="session")
def start_engine(engine_forks: EngineForks, spawn_engine) -> Iterator[Callable[..., EngineProcess]]:
    """`start_engine(*argv)` gives a ready engine on a free port; all are ended with the session."""
    started: list[ForkedProcess] = []

    def start(*argv: str) -> EngineProcess:
        process = spawn_engine(*argv)
        started.append(process)
        return EngineProcess(process, _wait_until_ready(process))

    yield start
    for process in started:
        process.kill()


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
def spawn_engine(
    engine_forks: EngineForks, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., ForkedProcess]:
    """`spawn_engine(*argv)` does not wait; the test ends the process."""

    def spawn(*argv: str) -> ForkedProcess:
        return engine_forks.start(
            "--port", "0", *argv, log_path=tmp_path_factory.mktemp("engine") / "output.log"
        )

    return spawn


@pytest.fixture(scope="session")
def run_engine_to_end(spawn_engine) -> Callable[..., EndedEngine]:
    """`run_engine_to_end(*argv)` for an engine that ends by itself."""

    def run(*argv: str, timeout_s: float = 60.0) -> EndedEngine:
        process = spawn_engine(*argv)
        return EndedEngine(process.wait(timeout_s), process.log_path.read_text())

    return run


def _environment() -> dict[str, str]:
    root = Path(__file__).resolve().parents[2]
    return os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def _wait_until_ready(process: ForkedProcess) -> int:
    """The port in the engine's `ready:` line."""
    ends = time.monotonic() + _START_DEADLINE_S
    while time.monotonic() < ends:
        log = process.log_path.read_text(errors="replace")
        for line in log.splitlines(keepends=True):
            if line.startswith("ready: ") and line.endswith("\n"):
                return int(line.split()[2].rpartition(":")[2])
        assert process.poll() is None, f"the engine ended with {process.poll()}:\n{log}"
        time.sleep(0.05)
    pytest.fail(f"the engine was not ready within {_START_DEADLINE_S} s:\n{process.log_path.read_text()}")


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
