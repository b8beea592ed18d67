"""Deployments that released SGLang refuses at start, and their neighbours that it takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.rules.flags import RULES as FLAG_RULES
from pdctl.topology.load import load_text

Said = Callable[..., list[str]]

BARE = "{executor: local}"
RADIX = "disaggregation-decode-enable-radix-cache: true"
TWO_NODES = "{executor: ssh, devices_per_node: 8, nodes: [{name: a, address: 10.0.0.1}, {name: b}]}"


@pytest.mark.parametrize(
    ("cluster", "settings", "found"),
    [
        (BARE, "{}", ["error PD246"]),
        (BARE, "{args: {device: cpu}}", []),
        (BARE, "{env: {SGLANG_USE_CPU_ENGINE: '1'}}", []),
        (BARE, "{env: {SGLANG_USE_CPU_ENGINE: '0'}}", ["error PD246"]),
        (BARE, "{args: {device: cuda}}", ["error PD246"]),
        ("{executor: ssh, nodes: [{name: a, devices: 8}]}", "{}", []),
    ],
)
def test_accelerators_are_counted(said: Said, cluster: str, settings: str, found: list[str]) -> None:
    assert said(cluster=cluster, defaults=settings) == found


@pytest.mark.parametrize(
    ("version", "prefill", "decode", "found"),
    [
        ("0.5.9", "enable-hierarchical-cache: true", "", []),
        ("0.5.9", "enable-hierarchical-cache: true, disable-radix-cache: true", "", ["error PD330"]),
        ("0.5.9", "", "enable-hierarchical-cache: true", ["error PD330"]),
        ("0.5.23", "", f"enable-hierarchical-cache: true, {RADIX}", []),
        ("0.5.20", "", "enable-lmcache: true", []),
        ("0.5.23", "", "enable-lmcache: true", ["error PD330"]),
        ("0.5.20", "enable-lmcache: true, enable-hierarchical-cache: true", "", []),
        ("0.5.23", "enable-lmcache: true, enable-hierarchical-cache: true", "", ["error PD330"]),
    ],
)
def test_caches_behind_the_radix_cache(
    said: Said, version: str, prefill: str, decode: str, found: list[str]
) -> None:
    roles = {"prefill": f"{{args: {{{prefill}}}}}", "decode": f"{{args: {{{decode}}}}}"}
    assert said(version=version, **roles) == found


@pytest.mark.parametrize(
    ("model", "settings", "found"),
    [
        ("{path: mine, context_length: 40960}", "args: {context-length: 65536}", ["error PD331"] * 2),
        ("{path: mine, context_length: 40960}", "args: {context-length: 40960}", []),
        ("{path: mine}", "args: {context-length: 65536}", []),
        ("{path: MiniMaxAI/MiniMax-M2}", "args: {context-length: 300000}", ["warning PD331"] * 2),
        (
            "{path: mine, context_length: 40960}",
            "args: {context-length: 65536}, env: {SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN: '1'}",
            [],
        ),
        (
            "{path: mine, context_length: 40960}",
            "args: {context-length: 65536, json-model-override-args: {rope_scaling: {factor: 4}}}",
            [],
        ),
    ],
)
def test_contexts_longer_than_the_model(said: Said, model: str, settings: str, found: list[str]) -> None:
    assert said(model=model, defaults=f"{{{settings}}}") == found


@pytest.mark.parametrize(
    ("version", "algorithm", "found"),
    [
        ("0.5.23", "EAGLE", []),
        ("0.5.23", "eagle3", []),
        ("0.5.23", "EAGEL", ["error PD332"] * 2),
        ("0.5.23", "ZIGZAG", ["warning PD332"] * 2),  # a plug-in may have it
        ("0.5.9", "EAGEL", []),  # its parser has choices, which the flag table knows
    ],
)
def test_speculative_algorithms(said: Said, version: str, algorithm: str, found: list[str]) -> None:
    assert said(version=version, defaults=f"{{args: {{speculative-algorithm: {algorithm}}}}}") == found


@pytest.mark.parametrize(
    ("numbers", "is_taken"),
    [
        ("", True),
        ("speculative-num-steps: 3", False),
        ("speculative-eagle-topk: 1", False),
        ("speculative-num-draft-tokens: 4", False),
        ("speculative-num-steps: 3, speculative-num-draft-tokens: 4", False),
        ("speculative-eagle-topk: 1, speculative-num-draft-tokens: 4", False),
        ("speculative-num-steps: 3, speculative-eagle-topk: 1", True),
        ("speculative-num-steps: 3, speculative-adaptive: true", True),
    ],
)
def test_numbers_of_drafts(said: Said, numbers: str, is_taken: bool) -> None:
    def drafting(algorithm: str) -> list[str]:
        return said(defaults=f"{{args: {{speculative-algorithm: {algorithm}, {numbers}}}}}")

    assert drafting("EAGLE") == ([] if is_taken else ["error PD333"] * 2)
    assert drafting("NGRAM") == []


@pytest.mark.parametrize(
    ("pages", "width", "found"),
    [
        (48, 1, ["error PD278"]),
        (100, 1, ["error PD278"]),
        (64, 1, []),
        (64, 32, []),
        (64, 3, ["error PD278"]),  # no power of two is a multiple of three
        (1, 3, []),
        (0, 1, ["error PD335"]),
        (-1, 1, ["error PD335"]),
    ],
)
def test_pages_against_the_chunks_that_are_chosen(
    said: Said, pages: int, width: int, found: list[str]
) -> None:
    role = f"{{nodes: 4, parallel: {{tp: {max(4, width)}, attn_dp: {width}}}}}"
    if width == 3:
        role = "{parallel: {tp: 3, attn_dp: 3}}"
    args = f"{{args: {{page-size: {pages}}}}}"
    assert said(model="{path: mine, attention: mla}", defaults=args, prefill=role, decode=role) == found


@pytest.mark.parametrize(
    ("cluster", "env", "found"),
    [
        (TWO_NODES, "SGLANG_HOST_IP: 127.0.0.1", ["error PD424"]),
        (TWO_NODES, "SGL_HOST_IP: 127.0.0.1", ["error PD424"]),
        (TWO_NODES, "SGLANG_HOST_IP: 0.0.0.0", ["error PD424"]),
        (TWO_NODES, "SGLANG_HOST_IP: 10.1.0.1", []),  # another network of that node
        ("{executor: ssh, devices_per_node: 8, nodes: [{name: a}]}", "SGLANG_HOST_IP: 127.0.0.1", []),
    ],
)
def test_addresses_that_variables_give(said: Said, cluster: str, env: str, found: list[str]) -> None:
    other = "{on: [b]}" if "name: b" in cluster else "{}"
    assert said(cluster=cluster, prefill=f"{{on: [a], env: {{{env}}}}}", decode=other) == found


def test_one_address_for_several_nodes(said: Said) -> None:
    shared = "{env: {SGLANG_HOST_IP: 10.1.0.1}}"
    assert said(cluster=TWO_NODES, defaults=shared, prefill="{on: [a]}", decode="{on: [a]}") == []
    wide = "{nodes: 2, parallel: {tp: 16}, env: {SGLANG_HOST_IP: 10.1.0.1}}"
    assert said(prefill=wide) == ["error PD424"]


@pytest.mark.parametrize(
    ("store", "found"),
    [
        ("tcp://10.0.0.1:24670", []),
        ("tcp://a:24670", []),
        ("tcp://192.168.7.1:24670", []),  # another network of the same node, perhaps
        ("tcp://b:24670", ["error PD424"]),
        ("tcp://127.0.0.1:24670", ["error PD424"]),
        ("tcp://[::]:24670", ["error PD424"]),
    ],
)
def test_where_the_store_of_ascend_is(said: Said, store: str, found: list[str]) -> None:
    transfer = f"{{backend: ascend, ascend: {{store_url: '{store}'}}}}"
    roles = {"prefill": "{on: [a]}", "decode": "{on: [b]}"}
    assert said(cluster=TWO_NODES, transfer=transfer, **roles) == found


@pytest.mark.parametrize(
    ("prefill", "decode", "found"),
    [
        ("page-size: 64", "attention-backend: trtllm_mla", []),  # which pages with 64
        ("page-size: 32", "attention-backend: flashmla", ["error PD312"]),
        ("page-size: 64", "", ["warning PD302"]),
        ("page-size: 64", "page-size: 32", ["error PD302"]),
    ],
)
def test_page_sizes_are_compared_once(said: Said, prefill: str, decode: str, found: list[str]) -> None:
    roles = {"prefill": f"{{args: {{{prefill}}}}}", "decode": f"{{args: {{{decode}}}}}"}
    assert said(model="{path: mine, attention: mla}", **roles) == found


@pytest.mark.parametrize(
    "model",
    [
        "deepseek-ai/DeepSeek-V3.2",
        "openai/gpt-oss-20b",
        "moonshotai/Kimi-K2.5",
        "zai-org/GLM-5",
        "Qwen/Qwen2.5-0.5B",
    ],
)
def test_heads_of_known_models(said: Said, model: str) -> None:
    assert "error PD279" in said(model=f"{{path: {model}}}", prefill="{parallel: {tp: 3}}")


@pytest.mark.parametrize(
    ("engine", "found"),
    [
        ('"0.5.23"', []),
        ('"0.5.24.dev3"', ["warning PD237"]),
        ("v0.5.23", ["error PD247"]),
        ("latest", ["error PD247"]),
        ('"0.5.23 "', ["error PD247"]),
    ],
)
def test_versions_are_numbers(engine: str, found: list[str]) -> None:
    text = "schema: pdctl/v1\nname: demo\nmodel: {path: mine}\nprefill: {}\ndecode: {}\n"
    topology = load_text(f"{text}engine: {{kind: sglang, version: {engine}}}\n").require()
    assert [f"{each.severity} {each.code}" for rule in FLAG_RULES for each in rule.check(topology)] == found
