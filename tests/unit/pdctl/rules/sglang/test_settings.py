"""What both roles share, pages, experts, stages, staging, and what SGLang refuses at start."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Said = Callable[..., list[str]]

HYBRID = "{path: mine, attention: hybrid}"
DEEPEP = "moe-a2a-backend: deepep"
LIMIT = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"


@pytest.mark.parametrize(
    ("prefill", "decode", "found"),
    [
        ("{MC_FORCE_TCP: '1'}", "{MC_FORCE_TCP: '1'}", []),
        ("{MC_FORCE_TCP: '1'}", "{}", ["error PD313"]),
        ("{SGLANG_DISAGG_STAGING_BUFFER: '1'}", "{SGLANG_DISAGG_STAGING_BUFFER: 'true'}", []),
        ("{SGLANG_DISAGG_STAGING_BUFFER: '0'}", "{}", []),
        ("{}", "{SGLANG_DISAGG_STAGING_BUFFER: '1'}", ["error PD313"]),
        ("{SGLANG_DSV4_KV_LAYOUT: a}", "{}", ["warning PD313"]),
        ("{SGLANG_DSV4_KV_LAYOUT: a}", "{SGLANG_DSV4_KV_LAYOUT: b}", ["error PD313"]),
    ],
)
def test_variables_that_both_roles_share(said: Said, prefill: str, decode: str, found: list[str]) -> None:
    assert said(prefill=f"{{env: {prefill}}}", decode=f"{{env: {decode}}}") == found


@pytest.mark.parametrize(
    ("decode", "found"),
    [("fp8_e4m3", []), ("bf16", ["error PD310"]), (None, ["warning PD310"])],
)
def test_dtypes_of_the_kv_cache(said: Said, decode: str | None, found: list[str]) -> None:
    args = "{}" if decode is None else f"{{args: {{kv-cache-dtype: {decode}}}}}"
    assert said(prefill="{args: {kv-cache-dtype: fp8_e4m3}}", decode=args) == found


@pytest.mark.parametrize(
    ("version", "prefill", "decode", "found"),
    [
        ("0.5.9", "bf16", "bfloat16", []),
        ("0.5.17", "bf16", "bfloat16", ["error PD310"]),  # compared as words
        ("0.5.9", "auto", "bf16", ["warning PD310"]),
        ("0.5.23", "auto", "bf16", ["warning PD310"]),  # `auto` is bfloat16 for some models
        ("0.5.9", "fp8_e4m3", "bf16", ["error PD310"]),
        ("0.5.23", "auto", "auto", []),
        ("0.5.23", "auto", None, []),
    ],
)
def test_names_of_dtypes(
    said: Said, version: str, prefill: str, decode: str | None, found: list[str]
) -> None:
    other = "{}" if decode is None else f"{{args: {{kv-cache-dtype: {decode}}}}}"
    assert said(version=version, prefill=f"{{args: {{kv-cache-dtype: {prefill}}}}}", decode=other) == found


@pytest.mark.parametrize(
    ("version", "found"), [("0.5.12.post1", ["warning PD314"]), ("0.5.13", ["error PD314"])]
)
def test_drafting_on_one_role_over_mori(said: Said, version: str, found: list[str]) -> None:
    decode = "{args: {speculative-algorithm: EAGLE}}"
    assert said(transfer="{backend: mori}", decode=decode, version=version) == found


@pytest.mark.parametrize(
    ("defaults", "found"),
    [
        ("{}", ["warning PD311"]),
        ("{args: {page-size: 64}}", []),
        ("{args: {attention-backend: trtllm_mha}}", []),
        ("{args: {attention-backend: triton}}", []),
    ],
)
def test_hybrid_models_pin_their_page_size(said: Said, defaults: str, found: list[str]) -> None:
    assert said(model=HYBRID, defaults=defaults) == found


@pytest.mark.parametrize(
    ("defaults", "prefill", "decode", "found"),
    [
        ("page-size: 64", "", "attention-backend: flashmla", []),
        ("page-size: 32", "", "attention-backend: flashmla", ["error PD312"]),
        ("page-size: 32", "", "attention-backend: trtllm_mla", []),
        ("", "", "attention-backend: flashmla", ["warning PD312"]),
        ("", "page-size: 64", "attention-backend: flashmla", []),
        ("", "attention-backend: cutlass_mla", "attention-backend: flashmla", ["error PD312"]),
    ],
)
def test_attention_backends_that_choose_pages(
    said: Said, defaults: str, prefill: str, decode: str, found: list[str]
) -> None:
    roles = {"prefill": f"{{args: {{{prefill}}}}}", "decode": f"{{args: {{{decode}}}}}"}
    assert said(defaults=f"{{args: {{{defaults}}}}}", **roles) == found


@pytest.mark.parametrize(
    ("chunk", "attn_dp", "found"),
    [
        (128, 4, ["error PD278"]),
        (8192, 4, []),
        (8192, 1, []),
        (100, 1, ["error PD278"]),
        (-1, 4, []),
    ],
)
def test_chunks_after_their_division(said: Said, chunk: int, attn_dp: int, found: list[str]) -> None:
    role = f"{{parallel: {{tp: 4, attn_dp: {attn_dp}}}"
    pages = "{args: {page-size: 64}}"
    prefill = f"{role}, args: {{chunked-prefill-size: {chunk}}}}}"
    assert said(defaults=pages, prefill=prefill, decode=f"{role}}}") == found


@pytest.mark.parametrize(
    ("width", "redundant", "found"),
    [
        (32, 0, []),
        (32, 32, []),
        (72, 32, []),
        (72, 0, ["error PD271"]),
        (72, 16, ["error PD271"]),
    ],
)
def test_experts_over_all_ranks(said: Said, width: int, redundant: int, found: list[str]) -> None:
    args = f"{{{DEEPEP}, ep-num-redundant-experts: {redundant}}}"
    decode = f"{{nodes: {width // 8}, parallel: {{tp: {width}, attn_dp: {width}}}, args: {args}}}"
    cluster = "{executor: ssh, nodes: 20, devices_per_node: 8}"
    assert said(model="{path: deepseek-ai/DeepSeek-R1}", cluster=cluster, decode=decode) == found


def test_experts_of_a_dense_or_unknown_model_are_not_counted(said: Said) -> None:
    decode = f"{{parallel: {{tp: 8, attn_dp: 8}}, args: {{{DEEPEP}, ep-num-redundant-experts: 3}}}}"
    prefill = "{parallel: {tp: 1}}"
    for model in ("{path: Qwen/Qwen3-32B}", "{path: mine, attention: mla}"):
        assert said(model=model, prefill=prefill, decode=decode) == []


@pytest.mark.parametrize(
    ("args", "limit", "found"),
    [
        ("cuda-graph-max-bs-decode: 128", None, []),  # 128 is the limit that isn't set
        ("cuda-graph-max-bs-decode: 256", None, ["error PD273"]),
        ("cuda-graph-max-bs-decode: 256", "512", []),
        ("cuda-graph-max-bs-decode: 256, deepep-mode: normal", None, ["warning PD272"]),
        ("cuda-graph-bs-decode: [8, 600]", "512", ["error PD273"]),
        ("cuda-graph-max-bs-decode: 256, max-running-requests: 512", None, []),  # 64 on each of 8 ranks
        ("cuda-graph-max-bs-decode: 1024, quantization: modelopt_fp4", "1024", ["warning PD273"]),
        ("max-running-requests: 1024", None, []),
        ("max-running-requests: 2048", None, ["warning PD273"]),
        ("cuda-graph-max-bs-decode: 8", "2048", ["error PD273"]),
        ("cuda-graph-max-bs-decode: 8", "many", ["warning PD294"]),
    ],
)
def test_dispatch_limits(said: Said, args: str, limit: str | None, found: list[str]) -> None:
    env = "{}" if limit is None else f'{{{LIMIT}: "{limit}"}}'
    decode = f"{{parallel: {{tp: 8, attn_dp: 8}}, env: {env}, args: {{{DEEPEP}, {args}}}}}"
    model = "{path: mine, attention: mla}"
    assert said(model=model, decode=decode) == found


@pytest.mark.parametrize(
    ("parallel", "args", "found"),
    [
        ("tp: 8", "moe-dense-tp-size: 8", []),
        ("tp: 8", "moe-dense-tp-size: 2", ["error PD274"]),
        ("tp: 8", "enable-eplb: true", ["error PD275"]),
        ("tp: 8, ep: 8", "enable-eplb: true", []),
        ("tp: 8", f"enable-eplb: true, {DEEPEP}", []),
        ("tp: 8", "enable-two-batch-overlap: true", ["error PD276"]),
        ("tp: 8, attn_dp: 8", "enable-two-batch-overlap: true", []),
        ("tp: 8, ep: 8", "ep-dispatch-algorithm: static", ["error PD286"]),
        ("tp: 8, ep: 8", "ep-dispatch-algorithm: dynamic", []),
        ("tp: 8", f"ep-dispatch-algorithm: static, {DEEPEP}", []),
        ("tp: 8, attn_dp: 4", "moe-a2a-backend: flashinfer_megamoe", ["error PD277"]),
        ("tp: 8, attn_dp: 8", "moe-a2a-backend: flashinfer_megamoe", []),
        ("tp: 8", "moe-a2a-backend: pplx", ["error PD277"]),
        ("tp: 8, ep: 4", DEEPEP, ["warning PD282"]),
        ("tp: 8, ep: 8", DEEPEP, []),
        ("tp: 8", f"{DEEPEP}, moe-runner-backend: flashinfer_cutedsl, deepep-mode: normal", ["error PD283"]),
        ("tp: 8", "enable-dp-lm-head: true", ["warning PD280"]),
        ("tp: 8, attn_dp: 2", "enable-dp-lm-head: true", []),
        ("tp: 2, dp: 2, attn_dp: 2", "", ["error PD284"]),
        ("tp: 2, dp: 2", "", []),
        ("tp: 8", "enable-response-store: true", ["error PD289"]),
        ("tp: 8", "enable-response-store: false", []),
        ("tp: 8", "disaggregation-decode-allocation-policy: early", []),
    ],
)
def test_what_sglang_refuses_of_one_role(said: Said, parallel: str, args: str, found: list[str]) -> None:
    prefill = f"{{parallel: {{{parallel}}}, args: {{{args}}}}}"
    assert said(model="{path: mine, attention: mla}", prefill=prefill) == found


def test_older_releases_check_less_or_more(said: Said) -> None:
    static = "{parallel: {tp: 8, ep: 8}, args: {ep-dispatch-algorithm: static}}"
    overlap = "{parallel: {tp: 8, attn_dp: 8}, args: {enable-two-batch-overlap: true}}"
    model = "{path: mine, attention: mla}"
    assert said(model=model, version="0.5.16", prefill=static) == []
    assert said(model=model, version="0.5.14", prefill=overlap) == ["error PD276"]


@pytest.mark.parametrize(
    ("model", "attn_cp", "found"),
    [
        ("{path: Qwen/Qwen3-32B}", 1, ["error PD326"]),
        ("{path: mine, attention: mla}", 1, []),
        ("{path: mine, attention: mla}", 2, ["error PD326"]),
        ("{path: mine}", 1, []),
    ],
)
def test_decode_context_parallelism(said: Said, model: str, attn_cp: int, found: list[str]) -> None:
    prefill = f"{{parallel: {{tp: {4 * attn_cp}, attn_cp: {attn_cp}}}}}"
    assert said(model=model, prefill=prefill, decode="{parallel: {tp: 4}, args: {dcp-size: 4}}") == found


def test_the_allocation_policy_is_checked_where_it_exists(said: Said) -> None:
    policy = "{args: {disaggregation-decode-allocation-policy: prefill_complete}}"
    assert said(defaults=policy) == []
    assert said(defaults=policy, transfer="{backend: nixl}") == ["error PD325"] * 2
    assert said(defaults=policy, transfer="{backend: nixl}", version="0.5.21") == []


@pytest.mark.parametrize(
    ("version", "backend", "prefill", "decode", "found"),
    [
        ("0.5.23", "mooncake", "EAGLE", None, ["warning PD314"]),
        ("0.5.20", "mooncake", "EAGLE", None, ["warning PD314", "error PD281"]),
        ("0.5.20", "ascend", "EAGLE", None, ["warning PD314"]),
        ("0.5.23", "mooncake", "NGRAM", None, ["error PD281"]),
        ("0.5.23", "mooncake", "EAGLE", "EAGLE", ["error PD281"]),
    ],
)
def test_drafting_across_stages(
    said: Said, version: str, backend: str, prefill: str, decode: str | None, found: list[str]
) -> None:
    drafting = f"{{parallel: {{pp: 2}}, args: {{speculative-algorithm: {prefill}}}}}"
    other = "{}" if decode is None else drafting
    transfer = f"{{backend: {backend}}}"
    assert said(version=version, transfer=transfer, prefill=drafting, decode=other) == found


@pytest.mark.parametrize(
    ("prefill", "decode", "found"),
    [(4, 4, []), (4, 1, []), (4, 2, ["error PD321"]), (1, 2, ["error PD321"])],
)
def test_pipeline_stages(said: Said, prefill: int, decode: int, found: list[str]) -> None:
    assert said(prefill=f"{{parallel: {{pp: {prefill}}}}}", decode=f"{{parallel: {{pp: {decode}}}}}") == found


def test_context_parallelism_is_prefills(said: Said) -> None:
    assert said(decode="{parallel: {tp: 2, attn_cp: 2}}") == ["error PD322"]


@pytest.mark.parametrize(
    ("model", "transfer", "prefill", "found"),
    [
        ("{path: Qwen/Qwen3-32B}", "{backend: mooncake, staging: on}", "{}", []),
        ("{path: deepseek-ai/DeepSeek-R1}", "{backend: mooncake, staging: on}", "{}", ["error PD315"]),
        ("{path: Qwen/Qwen3-32B}", "{backend: mori, staging: on}", "{}", ["error PD315"]),
        ("{path: Qwen/Qwen3-32B}", "{backend: nixl, staging: on}", "{parallel: {pp: 2}}", ["error PD315"]),
        (
            "{path: Qwen/Qwen3-32B}",
            "{backend: mooncake, staging: on}",
            "{args: {chunked-prefill-size: -1}}",
            ["error PD315"],
        ),
    ],
)
def test_where_staging_can_start(
    said: Said, model: str, transfer: str, prefill: str, found: list[str]
) -> None:
    assert said(model=model, transfer=transfer, prefill=prefill) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [("qwen", []), ("'qwen:32b'", ["error PD285"]), ("'s3://bucket/qwen'", [])],
)
def test_served_names(said: Said, name: str, found: list[str]) -> None:
    assert said(model=f"{{path: Qwen/Qwen3-32B, served_name: {name}}}") == found


def test_roles_that_switch(said: Said) -> None:
    switching = "{args: {enable-pd-role-switch: true}}"
    assert said(defaults=switching) == []
    assert said(defaults=switching, decode="{instances: 8}") == ["error PD288"]
    assert said(defaults=switching, prefill="{parallel: {pp: 2}}") == ["error PD288"]


@pytest.mark.parametrize(
    ("prefill", "decode", "found"),
    [
        ("speculative-algorithm: NGRAM", "", []),  # its drafts have no KV
        ("speculative-algorithm: [EAGLE]", "", ["warning PD314"]),
        ("kv-cache-dtype: fp8_e4m3", "kv-cache-dtype: [fp8_e4m3]", []),
        ("chunked-prefill-size: ['100'], page-size: 64", "page-size: ['64']", ["error PD278"]),
    ],
)
def test_values_in_lists_and_quotes(said: Said, prefill: str, decode: str, found: list[str]) -> None:
    assert said(prefill=f"{{args: {{{prefill}}}}}", decode=f"{{args: {{{decode}}}}}") == found


def test_experts_and_graphs_in_lists_and_quotes(said: Said) -> None:
    args = "moe-a2a-backend: [deepep], ep-num-redundant-experts: '3', cuda-graph-bs-decode: ['8', '600']"
    decode = f"{{nodes: 4, parallel: {{tp: 32, attn_dp: 32}}, args: {{{args}}}}}"
    model = "{path: deepseek-ai/DeepSeek-R1}"
    assert sorted(said(model=model, decode=decode)) == ["error PD271", "error PD273"]
