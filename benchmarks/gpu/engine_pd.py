"""The reference engine on one GPU: its prefill and decode processes move KV between their GPU memories.

    python benchmarks/gpu/engine_pd.py [--device cuda:0] [--backend nixl]... [--json FILE]

A random Llama of 4 KV heads, float32. One undisaggregated engine answers 20 prompts of 1 to 900 tokens. Then,
for each backend and shape, a pair behind the mini load balancer answers them all at once, with the KV of each
request checksummed on both sides, and has to say the same tokens. Ranks of one engine share the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NUM_PROMPTS = 20
NUM_TOKENS = 24
START_LIMIT_S = 120.0
SHAPES = {
    "equal": (1, 1, "on"),
    "staged": (2, 1, "on"),
    "head by head": (2, 1, "off"),
}  # prefill TP, decode TP


@dataclass(frozen=True, kw_only=True)
class Outcome:
    backend: str
    shape: str
    num_prompts: int
    num_equal: int
    start_s: float
    answer_s: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--backend", action="append", choices=["tcp", "nixl", "mooncake"])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "model")
        outcomes, faults = compare(model, args.device, args.backend or ["nixl", "mooncake"])
    result = {"device": args.device, "outcomes": [asdict(each) for each in outcomes], "faults": faults}
    print(json.dumps(result, indent=1))
    if args.json is not None:
        args.json.write_text(json.dumps(result))
    return 1 if faults or any(each.num_equal < each.num_prompts for each in outcomes) else 0


def compare(model: Path, device: str, backends: Sequence[str]) -> tuple[list[Outcome], list[str]]:
    common = ["--model-path", str(model), "--device", device, "--max-total-tokens", "32768", "--verify-kv"]
    prompts = some_prompts()
    with engine(*common) as url:
        expected = answers(url, prompts)
    outcomes: list[Outcome] = []
    faults: list[str] = []
    for backend in backends:
        for shape, (prefill_tp, decode_tp, staging) in SHAPES.items():
            began = time.monotonic()
            bootstrap = free_port()
            both = [*common, "--disaggregation-transfer-backend", backend, "--staging", staging]
            both += ["--disaggregation-bootstrap-port", str(bootstrap)]
            try:
                with ExitStack() as running:
                    prefill = running.enter_context(
                        engine(*both, "--disaggregation-mode", "prefill", "--tp-size", str(prefill_tp))
                    )
                    decode = running.enter_context(
                        engine(*both, "--disaggregation-mode", "decode", "--tp-size", str(decode_tp))
                    )
                    router = running.enter_context(load_balancer(prefill, bootstrap, decode))
                    started = time.monotonic()
                    found = answers(router, prompts)
                    ended = time.monotonic()
            except (OSError, RuntimeError) as error:
                faults.append(f"{backend}, {shape}: {error}")
                continue
            num_equal = sum(one == two for one, two in zip(found, expected, strict=True))
            outcomes.append(
                Outcome(
                    backend=backend,
                    shape=shape,
                    num_prompts=len(prompts),
                    num_equal=num_equal,
                    start_s=round(started - began, 2),
                    answer_s=round(ended - started, 2),
                )
            )
    return outcomes, faults


def some_prompts() -> list[list[int]]:
    chance = random.Random(3)
    lengths = [1, 2, 15, 16, 17, 511, 512, 513, 900, *range(40, 700, 60)]
    assert len(lengths) == NUM_PROMPTS
    return [[chance.randrange(3, 500) for _ in range(length)] for length in lengths]


def answers(url: str, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """All at once. Raises OSError where one is refused."""

    def ask(prompt: Sequence[int]) -> list[int]:
        body = {"input_ids": prompt, "sampling_params": {"temperature": 0, "max_new_tokens": NUM_TOKENS}}
        return post(f"{url}/generate", body)["output_ids"]

    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(ask, prompts))


def post(url: str, body: dict[str, object]) -> dict:
    request = urllib.request.Request(
        url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


@contextmanager
def engine(*flags: str) -> Iterator[str]:
    port = free_port()
    with running("runtime.engine", "--port", str(port), *flags, port=port, probe="/health") as url:
        yield url


@contextmanager
def load_balancer(prefill: str, bootstrap: int, decode: str) -> Iterator[str]:
    port = free_port()
    words = ["--port", str(port), "--prefill", prefill, str(bootstrap), "--decode", decode]
    with running("runtime.router", *words, port=port, probe="/readiness") as url:
        yield url


@contextmanager
def running(module: str, *words: str, port: int, probe: str) -> Iterator[str]:
    """The URL of a program that serves. Raises RuntimeError with its last lines when it doesn't."""
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environ(),
        )
        try:
            if not is_ready(process, url, probe):
                log.seek(0)
                raise RuntimeError(f"{module} does not serve: {log.read().decode(errors='replace')[-1500:]}")
            yield url
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def is_ready(process: subprocess.Popen[bytes], url: str, probe: str) -> bool:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url + probe, timeout=5) as response:
                if response.status == 200:
                    return True
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.1)
    return False


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def write_model(folder: Path) -> Path:
    import torch
    import transformers

    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        tie_word_embeddings=False,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    for weights in model.parameters():
        weights.data.normal_(0.0, 0.1) if weights.dim() > 1 else weights.data.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    sys.exit(main())
