"""Settings of one role that SGLang refuses, by release, and pairs that fail with their first request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Said = Callable[..., list[str]]

MLA = "{path: mine, attention: mla}"
SPARSE = "{path: MiniMaxAI/MiniMax-M3}"
POLICY = "disaggregation-decode-allocation-policy: prefill_complete"


@pytest.mark.parametrize("backend", ["mooncake", "mooncake_tcp", "nixl", "mori", "ascend"])
def test_sparse_attention_is_sharded_alike(said: Said, backend: str) -> None:
    roles = {"prefill": "{parallel: {tp: 4}}", "decode": "{parallel: {tp: 8, attn_dp: 8}}"}
    assert said(model=SPARSE, transfer=f"{{backend: {backend}}}", **roles) == ["error PD317"]
    equal = "{parallel: {tp: 4}}"
    assert said(model=SPARSE, transfer=f"{{backend: {backend}}}", prefill=equal, decode=equal) == []


def test_sparse_attention_has_one_stage(said: Said) -> None:
    roles = {"prefill": "{parallel: {tp: 4, pp: 2}}", "decode": "{parallel: {tp: 4}}"}
    assert said(model=SPARSE, **roles) == ["error PD327"]
    assert said(model=MLA, **roles) == []


@pytest.mark.parametrize(
    ("version", "attn_dp", "more", "found"),
    [
        ("0.5.12.post1", 4, "", []),
        ("0.5.13", 4, "", ["error PD277"]),
        ("0.5.23", 4, "", ["error PD277"]),
        ("0.5.23", 8, "", []),
        ("0.5.23", 4, ", enable-layernorm-sp: true", []),  # Muse Spark's way
        ("0.5.23", 8, ", moe-runner-backend: deep_gemm", []),
        ("0.5.23", 8, ", moe-runner-backend: auto", []),
        ("0.5.23", 8, ", moe-runner-backend: cutlass", ["error PD245"]),
        ("0.5.12.post1", 8, ", moe-runner-backend: cutlass", []),
    ],
)
def test_flashinfers_all_to_all(said: Said, version: str, attn_dp: int, more: str, found: list[str]) -> None:
    decode = f"{{parallel: {{tp: 8, attn_dp: {attn_dp}}}, args: {{moe-a2a-backend: flashinfer{more}}}}}"
    assert said(model=MLA, decode=decode, version=version) == found


@pytest.mark.parametrize(
    ("role", "found"),
    [
        (f"{{args: {{{POLICY}}}}}", []),
        (f"{{parallel: {{tp: 2, attn_dp: 2}}, args: {{{POLICY}}}}}", ["error PD325"]),  # see the explanation
        (f"{{parallel: {{tp: 2, pp: 2}}, args: {{{POLICY}}}}}", ["error PD325", "error PD325"]),
        (f"{{args: {{{POLICY}, enable-hisparse: true}}}}", ["error PD325"]),
        (f"{{args: {{{POLICY}}}, env: {{SGLANG_RUST_SERVER: '1'}}}}", ["error PD325"]),
        (f"{{args: {{{POLICY}, enable-hierarchical-cache: true}}}}", ["error PD325"]),
        (
            f"{{args: {{{POLICY}, enable-hierarchical-cache: true, hicache-write-policy: write_back}}}}",
            [],
        ),
    ],
)
def test_what_the_policy_excludes_on_prefill(said: Said, role: str, found: list[str]) -> None:
    decode = f"{{args: {{{POLICY}}}}}"
    assert said(model=MLA, prefill=role, decode=decode) == found
    assert "error PD325" not in said(model=MLA, prefill=role, decode=decode, version="0.5.21")


def test_what_the_policy_excludes_on_decode(said: Said) -> None:
    cache = "disaggregation-decode-enable-radix-cache: true, enable-hierarchical-cache: true"
    args = f"{POLICY}, {cache}, hicache-write-policy: write_back"
    found = said(model=MLA, prefill=f"{{args: {{{POLICY}}}}}", decode=f"{{args: {{{args}}}}}")
    assert found == ["error PD325"] * 2  # for either cache


@pytest.mark.parametrize(
    ("env", "version", "found"),
    [
        ("{SGLANG_MOONCAKE_CUSTOM_MEM_POOL: NVLINK}", "0.5.23", []),
        ("{SGLANG_MOONCAKE_CUSTOM_MEM_POOL: 'True'}", "0.5.23", []),
        ("{SGLANG_MOONCAKE_CUSTOM_MEM_POOL: '1'}", "0.5.23", ["warning PD242", "warning PD242"]),
        ("{MOONCAKE_PROTOCOL: efa}", "0.5.23", []),
        (
            "{MOONCAKE_PROTOCOL: EFA, PYTORCH_ALLOC_CONF: 'expandable_segments:True'}",
            "0.5.23",
            ["error PD243"] * 2,
        ),
        ("{MOONCAKE_PROTOCOL: efa, PYTORCH_ALLOC_CONF: 'expandable_segments:False'}", "0.5.23", []),
        ("{MOONCAKE_PROTOCOL: rdma, PYTORCH_ALLOC_CONF: 'expandable_segments:True'}", "0.5.23", []),
        (
            "{MOONCAKE_PROTOCOL: efa, SGLANG_MOONCAKE_CUSTOM_MEM_POOL: BAREX}",
            "0.5.12.post1",
            ["error PD243"] * 2,
        ),
        ("{MOONCAKE_PROTOCOL: efa, SGLANG_MOONCAKE_CUSTOM_MEM_POOL: INTRA_NODE_NVLINK}", "0.5.23", []),
    ],
)
def test_memory_that_mooncake_allocates(said: Said, env: str, version: str, found: list[str]) -> None:
    assert said(defaults=f"{{env: {env}}}", version=version) == found


def test_pools_of_mooncake_beside_another_backend(said: Said) -> None:
    env = "{env: {SGLANG_MOONCAKE_CUSTOM_MEM_POOL: '1', MOONCAKE_PROTOCOL: efa}}"
    assert said(transfer="{backend: nixl}", defaults=env) == []


@pytest.mark.parametrize(
    ("version", "backend", "found"),
    [
        ("0.5.12.post1", "mooncake", []),
        ("0.5.17", "mooncake", ["error PD315"]),
        ("0.5.18", "mooncake", []),
        ("0.5.18", "nixl", ["error PD315"]),
        ("0.5.23", "mooncake", []),
        ("0.5.23", "nixl", ["error PD315"]),
    ],
)
def test_staging_with_stages_of_prefill(said: Said, version: str, backend: str, found: list[str]) -> None:
    roles = {"prefill": "{parallel: {tp: 4, pp: 2}}", "decode": "{parallel: {tp: 2}}"}
    transfer = f"{{backend: {backend}, staging: %s}}"
    assert said(transfer=transfer % "'on'", version=version, **roles) == found
    # Left to itself, staging isn't chosen where it can't start, which is slow and works.
    auto = said(transfer=transfer % "auto", version=version, **roles)
    assert auto == (["warning PD318"] if found else [])


def test_staging_is_not_chosen_without_chunks(said: Said) -> None:
    roles = {
        "prefill": "{parallel: {tp: 4}, args: {chunked-prefill-size: -1}}",
        "decode": "{parallel: {tp: 2}}",
    }
    assert said(**roles) == ["warning PD318"]


@pytest.mark.parametrize(("version", "found"), [("0.5.17", ["error PD315"]), ("0.5.20", [])])
def test_staging_with_context_ranks_of_prefill(said: Said, version: str, found: list[str]) -> None:
    prefill = "{parallel: {tp: 4}, args: {enable-prefill-cp: true, cp-strategy: zigzag}}"
    transfer = "{backend: mooncake, staging: 'on'}"
    assert said(transfer=transfer, prefill=prefill, decode="{parallel: {tp: 2}}", version=version) == found


def test_sharded_kv_cache(said: Said) -> None:
    prefill = "{parallel: {tp: 8}, args: {enable-kv-cache-sharding: true}}"
    assert said(model=MLA, prefill=prefill, decode="{parallel: {tp: 8}}") == []
    assert said(model=MLA, prefill=prefill, decode="{parallel: {tp: 4}}") == ["error PD329"]
    assert said(model=MLA, prefill=prefill, decode="{parallel: {tp: 8}, args: {dcp-size: 2}}") == [
        "error PD329"
    ]
