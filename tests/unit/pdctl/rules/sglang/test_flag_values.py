"""Values that SGLang's parser takes and the server doesn't, and flags that need company."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Said = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ("mem-fraction-static: 85", ["error PD342"]),
        ("mem-fraction-static: -0.5", ["error PD342"]),
        ("mem-fraction-static: 0.85", []),
        ("max-running-requests: -3", ["error PD342"]),
        ("tokenizer-worker-num: 0", ["error PD342"]),
        ("max-loras-per-batch: 0", ["error PD342"]),
        ("schedule-conservativeness: 0", []),
        ("device: gpu", ["error PD343"]),
        ("device: mps", []),
        ("device: ours", ["warning PD343"]),
        ("eplb-algorithm: deepsek", ["error PD343"]),
        ("eplb-algorithm: elasticity_aware", []),
    ],
)
def test_values_that_mean_nothing(said: Said, args: str, found: list[str]) -> None:
    assert said(prefill=f"{{args: {{{args}}}}}") == found


def test_a_value_for_both_roles_is_told_once(said: Said) -> None:
    assert said(defaults="{args: {mem-fraction-static: 85}}") == ["error PD342"]


@pytest.mark.parametrize(
    ("args", "is_refused"),
    [
        ("enable-priority-scheduling: true, schedule-policy: lpm", True),
        ("enable-priority-scheduling: true, schedule-policy: lof", False),
        ("enable-priority-scheduling: true", False),
        ("retraction-policy: priority", True),
        ("retraction-policy: priority, enable-priority-scheduling: true", False),
        ("enable-prefill-cp: true", True),
        ("enable-prefill-cp: true, cp-strategy: zigzag", False),
        ("enable-lora: true", True),
        ("enable-lora: true, max-lora-rank: 8", True),
        ("enable-lora: true, max-lora-rank: 8, lora-target-modules: [all]", False),
        ("enable-lora: true, lora-paths: [a=/x]", False),
        ("enable-lora: false", False),
        ("export-metrics-to-file: true", True),
        ("ssl-keyfile: /k", True),
        ("ssl-ca-certs: /k", True),
    ],
)
def test_flags_that_need_another(said: Said, args: str, is_refused: bool) -> None:
    assert ("error PD344" in said(prefill=f"{{args: {{{args}}}}}")) == is_refused


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("{path: Qwen/Qwen3-32B}", ["error PD345"]),
        ("{path: deepseek-ai/DeepSeek-V3.2}", []),
        ("{path: /models/mine}", []),
    ],
)
def test_hisparse_is_for_models_with_an_index(said: Said, model: str, found: list[str]) -> None:
    flag = "{args: {enable-hisparse: true}}"
    assert [each for each in said(model=model, prefill=flag) if "PD345" in each] == found


@pytest.mark.parametrize(
    ("args", "is_refused"),
    [
        ("ssl-keyfile: /k, ssl-certfile: /c", True),
        ("smg-grpc-mode: true", True),
        ("grpc-mode: false", False),
        ("grpc-port: 40000", False),
        ("enable-http2: true", False),
    ],
)
def test_servers_speak_http(said: Said, args: str, is_refused: bool) -> None:
    assert ("error PD341" in said(decode=f"{{args: {{{args}}}}}")) == is_refused


def test_the_canary_has_no_key_of_the_servers(said: Said) -> None:
    key = "{args: {api-key: k}}"
    assert said(defaults=key) == ["warning PD253"]
    assert said(defaults=key, health="{canary: false}") == []


def test_the_router_outlasts_the_wait_that_decode_has_by_default(said: Said) -> None:
    router = "{kind: sglang_router, request_timeout_s: %d}"
    assert said(router=router % 30) == ["warning PD431"]
    assert said(router=router % 300) == []
    assert said(router=router % 30, transfer="{backend: mooncake, waiting_timeout_s: 20}") == []


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ("{MC_MIN_RPC_PORT: '29000', MC_MAX_RPC_PORT: '31000'}", ["warning PD434", "warning PD434"]),
        ("{MC_MAX_RPC_PORT: '30050'}", ["warning PD434"]),
        ("{MC_MIN_RPC_PORT: '16000'}", []),
        ("{}", []),
    ],
)
def test_mooncake_draws_no_port_of_the_plan(said: Said, env: str, found: list[str]) -> None:
    assert said(defaults=f"{{env: {env}}}") == found


def test_both_roles_load_one_revision(said: Said) -> None:
    one, other = "{args: {revision: main}}", "{args: {revision: v2}}"
    assert said(prefill=one, decode=other) == ["error PD313"]
    assert said(prefill=one) == []
    assert said(defaults=other) == []


@pytest.mark.parametrize(
    ("plugin", "found"),
    [("UXC", ["warning PD343"]), ("libfabric", ["warning PD343"]), ("UCX", []), ("OURS_ALONE", [])],
)
def test_plugins_of_nixl(said: Said, plugin: str, found: list[str]) -> None:
    assert said(transfer=f"{{backend: nixl, nixl: {{plugin: {plugin}}}}}") == found
