"""Released SGLang over hosts: prefill on one, decode on another, its own router on a third.

The tokens are those of transformers on the same weights, which knows nothing of any of it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testbed.hosts.host import Host
from tests.testbed.hosts.host_set import HostSet
from tests.testbed.hosts.host_spec import HostSpec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SGLANG = Path(__file__).parents[2] / "testbed/sglang_cpu"
PROMPTS = ("x", "Prefill writes the keys and values that decode reads. " * 6)
NUM_TOKENS = 24
BYTES_PER_TOKEN = 2 * 2 * 2 * 32 * 4  # of KV cache: layers, keys and values, heads, their width, float32
# What SGLang itself leaves where it ran, in /tmp and /dev/shm, whoever ends it.
LEFT_BY_SGLANG = re.compile(r"files: new: (/tmp/tmp\w+ 0|/dev/shm/(sem\.mp-|sglang_loads_).*)")


@pytest.fixture(scope="module")
def sglang_python() -> str:
    """Built on first use; before the hosts boot, whose disks lie over this machine's."""
    install = [sys.executable, SGLANG / "install.py"]
    done = subprocess.run(install, check=True, stdout=subprocess.PIPE, timeout=580)
    return json.loads(done.stdout)["python"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    subprocess.run([sys.executable, SGLANG / "tiny_model.py", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def hosts(make_hosts: Callable[..., HostSet], sglang_python: str, model: Path) -> HostSet:
    files = {"/root/.local/state/other/program": "keeps its state beside ours"}
    worker = HostSpec(files=files, shares=(str(model),))
    return make_hosts(n1=worker, n2=worker, n3=HostSpec(files=files))


@pytest.fixture
def topology(tmp_path: Path, hosts: HostSet, sglang_python: str, model: Path) -> Path:
    file = tmp_path / "sglang.yaml"
    file.write_text(
        "schema: pdctl/v1\nname: sglang-far\n"
        f"model: {{path: {model}, served_name: tiny}}\n"
        f'engine: {{kind: sglang, version: "0.5.23", python: {sglang_python}}}\n'
        "cluster:\n  executor: ssh\n"
        f"  ssh: {{config: {hosts.ssh_config}}}\n"
        '  nodes: [{name: "n[1-3]", address: auto}]\n'
        "transfer: {backend: mooncake_tcp}\n"
        "defaults:\n"
        "  args: {device: cpu, dtype: float32, max-total-tokens: 4096, skip-server-warmup: true,"
        " sleep-on-idle: true}\n"
        '  env: {OMP_NUM_THREADS: "1", TORCHDYNAMO_DISABLE: "1", HF_HUB_OFFLINE: "1",'
        ' PYTHONDONTWRITEBYTECODE: "1"}\n'
        "prefill: {on: [n1]}\n"
        "decode: {on: [n2], args: {disaggregation-decode-retraction-backup: none}}\n"
        f"router: {{kind: sglang_router, on: n3, python: {sys.executable}}}\n"
    )
    return file


def test_sglang_on_three_hosts_answers_as_transformers_does(operator, topology, hosts, model, left_behind):
    ada = operator("ada")
    up = ada.begin("up", topology)
    assert up.wait(500) == 0, ada.output()
    assert set(ada.states("sglang-far").values()) == {"ready"}

    before = _sent_bytes(hosts["n1"])
    answers = [_generate(hosts["n3"], prompt) for prompt in PROMPTS]
    sent_bytes = _sent_bytes(hosts["n1"]) - before
    num_prompt_tokens = sum(answer["meta_info"]["prompt_tokens"] for answer in answers)
    assert sent_bytes >= num_prompt_tokens * BYTES_PER_TOKEN
    assert [answer["output_ids"] for answer in answers] == _greedy_by_transformers(model)

    ada.pdctl("down", "sglang-far")
    assert "\n".join(line for line in left_behind() if not LEFT_BY_SGLANG.search(line)) == ""


def _generate(router: Host, prompt: str) -> dict:
    sampling = {"temperature": 0, "max_new_tokens": NUM_TOKENS, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://{router.address}:8000/generate",
        data=json.dumps({"text": prompt, "sampling_params": sampling}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


def _greedy_by_transformers(model: Path) -> list[list[int]]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    answers: list[list[int]] = []
    for prompt in PROMPTS:
        given = tokenizer(prompt, return_tensors="pt")
        made = network.generate(
            **given, max_new_tokens=NUM_TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        answers.append(made[0, given["input_ids"].shape[1] :].tolist())
    return answers


def _sent_bytes(host: Host) -> int:
    """By the counter of the cable's other end."""
    return int(Path(f"/sys/class/net/{host.nic}/statistics/rx_bytes").read_text())
