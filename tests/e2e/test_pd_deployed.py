"""Disaggregated engines as pdctl deploys them: a rehearsal behind the real router, a change under load."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.testbed.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_ROOT = Path(__file__).parents[2]
_ENV = f"{{PYTHONPATH: '{_ROOT}', OMP_NUM_THREADS: '1'}}"
_ARGS = "{page-size: 8, kv-pool-mb: 16, num-threads: 1}"
_REPLACED = """schema: pdctl/v1
name: replaced
model: {{path: {model}, served_name: tiny}}
engine: {{kind: reference}}
transfer: {{verify_kv: true}}
defaults: {{args: {args}, env: {env}}}
prefill: {{port: {prefill}, bootstrap_port: {bootstrap}}}
decode: {{instances: 2, port: {decode}}}
router: {{port: {router}}}
"""
_NUM_CLIENTS = 8
Pdctl = Callable[..., str]
FreePort = Callable[..., int]


@pytest.fixture
def pdctl(tmp_path: Path) -> Iterator[Pdctl]:
    """`pdctl("up", "FILE")` gives what it said. It has a state of its own; all is down in the end."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PDCTL_")}
    environ |= {"PDCTL_STATE_DIR": str(tmp_path / "state"), "PYTHONPATH": str(_ROOT), "NO_COLOR": "1"}
    names: set[str] = set()

    def run(*words: str, name: str) -> str:
        names.add(name)
        argv = [sys.executable, "-m", "pdctl", *words]
        done = subprocess.run(argv, env=environ, cwd=_ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    yield run
    for name in names:
        run("down", name, name=name)


def test_a_rehearsal_of_prefill_tp4_and_decode_tp4_dp4_with_staging_answers_a_chat(
    pdctl: Pdctl, tiny_llama: Path, free_port: FreePort
) -> None:
    """The topology as it ships for SGLang; real router, Mooncake where it is installed."""
    prefill, bootstrap, decode, router, metrics = (free_port() for _ in range(5))
    sets = (
        f"model.path={tiny_llama}",
        "model.served_name=tiny",
        "transfer.staging={mode: on, pool_mb: 16}",
        f"defaults.env={_ENV}",
        f"defaults.args={_ARGS}",
        f"prefill.port={prefill}",
        f"prefill.bootstrap_port={bootstrap}",
        f"decode.port={decode}",
        f"router.port={router}",
        f"router.metrics_port={metrics}",
    )
    overlay = [word for each in sets for word in ("--set", each)]
    file = "topologies/hetero_tp4_dp4.yaml"
    said = pdctl("up", file, "--engine", "reference", *overlay, name="hetero-tp4-dp4-rehearsal")
    assert "warning[PD381]" in said
    assert "verified in " in said
    for _ in range(4):  # one for each attention-DP rank
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12}
        answer = httpx.post(f"http://127.0.1.0:{router}/v1/chat/completions", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] > 0
    facts = [_facts(f"http://127.0.1.0:{prefill}"), _facts(f"http://127.0.1.1:{decode}")]
    assert [(each["tp_size"], each["dp_size"]) for each in facts] == [(4, 1), (4, 4)]
    assert all(each["stats"]["transfer_bytes"] > 0 for each in facts)


def test_a_decode_instance_is_replaced_under_load_without_a_failed_request(
    pdctl: Pdctl, tiny_llama: Path, tmp_path: Path, free_port: FreePort
) -> None:
    """What has not begun to stream goes through the other instance."""
    prefill, bootstrap, router = (free_port() for _ in range(3))
    decode = free_port(2)  # instances of a role count up
    ports = {"prefill": prefill, "bootstrap": bootstrap, "decode": decode, "router": router}
    file = tmp_path / "replaced.yaml"
    file.write_text(_REPLACED.format(model=tiny_llama, args=_ARGS, env=_ENV, **ports))
    pdctl("up", str(file), name="replaced")
    url, before = f"http://127.0.0.1:{router}", _facts(f"http://127.0.0.1:{decode}")
    expected = _tokens(url)
    is_over = threading.Event()
    with ThreadPoolExecutor(_NUM_CLIENTS) as pool:
        clients = [pool.submit(_keep_asking, url, is_over) for _ in range(_NUM_CLIENTS)]
        try:
            pdctl("restart", "decode-0", "--name", "replaced", name="replaced")
        finally:
            is_over.set()
        answers = [answer for client in clients for answer in client.result()]
    assert _facts(f"http://127.0.0.1:{decode}")["started_at"] > before["started_at"]
    assert len(answers) >= 3 * _NUM_CLIENTS
    assert all(answer == expected for answer in answers)
    for engine in (prefill, decode, decode + 1):
        wait_until(lambda engine=engine: _is_empty(_facts(f"http://127.0.0.1:{engine}")["stats"]))


def _keep_asking(url: str, is_over: threading.Event) -> list[list[int]]:
    answers: list[list[int]] = []
    while not is_over.is_set() or len(answers) < 3:
        answers.append(_tokens(url))
    return answers


def _tokens(url: str) -> list[int]:
    sampling = {"max_new_tokens": 24, "temperature": 0, "ignore_eos": True}
    answer = httpx.post(
        f"{url}/generate", json={"input_ids": [5, 6, 7], "sampling_params": sampling}, timeout=60
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["output_ids"]


def _facts(url: str) -> dict[str, Any]:
    return httpx.get(f"{url}/server_info", timeout=30).json()


def _is_empty(stats: dict[str, Any]) -> bool:
    in_use = [stats[name] for name in ("num_running", "num_waiting", "num_handshaking", "num_transferring")]
    in_use += [stats["extra"][name] for name in ("num_rooms", "num_reports")]
    return stats["num_free_pages"] == stats["num_pages"] and not any(in_use)
