"""The same tokens, whatever computes them: transformers, one engine, or prefill and decode apart.

Greedy, float32, token for token: 50 prompts of 1 to 1,500 tokens sent at once. SmolLM2 is read
by transformers itself, from the same GGUF file, so reader and forward pass are both independent of ours.
transformers reads prompt and answer at once, and says of each place what it would go on with there: where
that is the answer's own token, every time, it would have given the same answer, at a tenth of the work.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
NUM_PROMPTS = 50
NUM_NEW_TOKENS = 12
LONGEST_PROMPT = 1500
PORT_KEYS = ("prefill.port", "prefill.bootstrap_port", "decode.port", "router.port")

Prompts = list[list[int]]
Answers = list[list[int]]


def prompt_lengths() -> list[int]:
    """From 1 to 1,500, many short and some long, as requests are; about 5,000 in all."""
    return [round(LONGEST_PROMPT ** ((number / (NUM_PROMPTS - 1)) ** 2)) for number in range(NUM_PROMPTS)]


def greedy_by_transformers(model, prompts: Prompts, answers: Answers) -> Answers:
    """What it would say at each place of these answers: the answers themselves, when they are its own."""
    import torch

    said: Answers = []
    with torch.inference_mode():
        for prompt, answer in zip(prompts, answers, strict=True):
            read = torch.tensor([prompt + answer[:-1]])
            said.append(model(read, logits_to_keep=len(answer)).logits[0].argmax(dim=-1).tolist())
    return said


def greedy_by_http(url: str, prompts: Prompts) -> Answers:
    """All at once; SGLang's route, which takes token ids."""

    def ask(prompt: list[int]) -> list[int]:
        sampling = {"temperature": 0, "max_new_tokens": NUM_NEW_TOKENS, "ignore_eos": True}
        answer = client.post("/generate", json={"input_ids": prompt, "sampling_params": sampling})
        assert answer.status_code == 200, answer.text
        return answer.json()["output_ids"]

    with (
        httpx.Client(base_url=url, timeout=600, limits=httpx.Limits(max_connections=NUM_PROMPTS)) as client,
        ThreadPoolExecutor(NUM_PROMPTS) as pool,
    ):
        return list(pool.map(ask, prompts))


# --- SmolLM2 -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm_path() -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "runtime.models", "pull", "smollm2-135m-instruct", "--progress", "json"],
        check=True,
        capture_output=True,
        text=True,
    )
    return Path(json.loads(done.stdout.splitlines()[-1])["path"])


@pytest.fixture(scope="module")
def smollm_prompts() -> Prompts:
    """Stretches of a real text, as token ids of the model's own tokenizer."""
    from runtime.engine.tokenizer import load_tokenizer

    tokenizer = load_tokenizer("builtin:smollm2-135m-instruct")
    assert tokenizer is not None
    tokens = list(tokenizer.encode((ROOT / "LICENSE").read_text()))
    assert len(tokens) > LONGEST_PROMPT + NUM_PROMPTS
    return [tokens[start : start + length] for start, length in enumerate(prompt_lengths())]


@pytest.fixture(scope="module")
def smollm_says(smollm_path: Path, smollm_prompts: Prompts) -> Callable[[Answers], Answers]:
    """`greedy_by_transformers` for these prompts, once for answers that are the same."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        smollm_path.parent, gguf_file=smollm_path.name, dtype=torch.float32
    )
    said: list[tuple[Answers, Answers]] = []

    def says(answers: Answers) -> Answers:
        for asked, known in said:
            if asked == answers:
                return known
        said.append((answers, greedy_by_transformers(model, smollm_prompts, answers)))
        return said[-1][1]

    return says


@pytest.fixture(scope="module")
def pdctl(tmp_path_factory: pytest.TempPathFactory):
    """`pdctl` with a state directory of its own."""
    environ = {**os.environ, "PDCTL_STATE_DIR": str(tmp_path_factory.mktemp("state")), "NO_COLOR": "1"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pdctl", *words],
            env=environ,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture(scope="module", params=["mini_lb", "sglang_router"])
def router_url(request: pytest.FixtureRequest, pdctl, free_port) -> Iterator[str]:
    """`topologies/laptop_1p1d.yaml`, brought up with either router."""
    ports = {key: free_port() for key in PORT_KEYS}
    if request.param == "sglang_router":
        ports["router.metrics_port"] = free_port()
    sets = [word for key, port in ports.items() for word in ("--set", f"{key}={port}")]
    sets += ["--set", f"router.kind={request.param}", "--set", "transfer.verify_kv=true"]
    up = pdctl("up", "topologies/laptop_1p1d.yaml", *sets)
    assert up.returncode == 0, up.stderr
    yield f"http://127.0.0.1:{ports['router.port']}"
    down = pdctl("down", "laptop-1p1d")
    assert down.returncode == 0, down.stderr


def test_prefill_and_decode_apart_say_what_transformers_says(
    router_url: str, smollm_prompts: Prompts, smollm_says: Callable[[Answers], Answers]
):
    answers = greedy_by_http(router_url, smollm_prompts)
    assert {len(answer) for answer in answers} == {NUM_NEW_TOKENS}
    assert answers == smollm_says(answers)


def test_one_engine_says_what_transformers_says(
    start_engine, smollm_prompts: Prompts, smollm_says: Callable[[Answers], Answers]
):
    engine = start_engine("--model-path", "builtin:smollm2-135m-instruct")
    answers = greedy_by_http(engine.url, smollm_prompts)
    assert {len(answer) for answer in answers} == {NUM_NEW_TOKENS}
    assert answers == smollm_says(answers)
    engine.process.terminate()
    engine.process.wait()


# --- Tiny models of every family ---------------------------------------------------------------------------


def _tiny_config(family: str):
    """Small, with grouped heads, and what makes the family different."""
    import transformers

    shape = {
        "vocab_size": 512,
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    match family:
        case "llama":
            return transformers.LlamaConfig(**shape, tie_word_embeddings=False)
        case "qwen2":
            return transformers.Qwen2Config(**shape, tie_word_embeddings=True)
        case _:
            return transformers.Qwen3Config(**shape, head_dim=32, tie_word_embeddings=False)


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A folder that transformers wrote, and the model it wrote: random, wide enough that answers vary."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(_tiny_config(request.param), dtype=torch.float32).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() > 1:
                weights.mul_(4.0)
            elif "bias" in name:
                weights.normal_(std=0.5)
            else:
                weights.add_(torch.randn_like(weights) * 0.2)
    folder = tmp_path_factory.mktemp(f"tiny-{request.param}")
    model.save_pretrained(folder)
    return folder, model


def test_a_tiny_pair_says_what_transformers_says(tiny, start_engine, start_router, free_port):
    import random

    folder, model = tiny
    choose = random.Random(3)
    prompts = [[choose.randrange(512) for _ in range(length)] for length in prompt_lengths()]
    shape = ("--model-path", str(folder), "--max-total-tokens", "40000", "--verify-kv")
    prefill = start_engine(
        *shape, "--disaggregation-mode", "prefill", "--disaggregation-bootstrap-port", str(free_port())
    )
    decode = start_engine(*shape, "--disaggregation-mode", "decode")
    router_url = start_router(prefill, decode)
    answers = greedy_by_http(router_url, prompts)
    assert {len(answer) for answer in answers} == {NUM_NEW_TOKENS}
    assert len({tuple(answer) for answer in answers}) > NUM_PROMPTS // 2, "answers must tell prompts apart"
    assert answers == greedy_by_transformers(model, prompts, answers)
    for engine in (prefill, decode):
        engine.process.terminate()
        engine.process.wait()


@pytest.fixture
def start_router(free_port, wait_until) -> Iterator:
    """Our router in front of one pair of engines."""
    routers: list[subprocess.Popen[bytes]] = []

    def start(prefill, decode) -> str:
        bootstrap = prefill.process.args[prefill.process.args.index("--disaggregation-bootstrap-port") + 1]
        port = free_port()
        argv = [sys.executable, "-m", "runtime.router", "--port", str(port)]
        argv += ["--prefill", prefill.url, bootstrap, "--decode", decode.url]
        routers.append(subprocess.Popen(argv, stderr=subprocess.DEVNULL))
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(f"{url}/readiness"), "the router is ready")
        return url

    yield start
    for router in routers:
        router.terminate()
        router.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=30).status_code == 200
    except httpx.TransportError:
        return False
