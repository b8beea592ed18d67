"""Deployments that look wrong and are published as working: the rules stay silent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.models.resolve import with_facts
from pdctl.rules import check
from pdctl.topology.load import load_text

Said = Callable[..., list[str]]

MLA = "{path: deepseek-ai/DeepSeek-V3}"
ONE_NODE = "{executor: ssh, devices_per_node: 8, nodes: [{name: a, address: 127.0.0.1}]}"
NEXTN = "speculative-algorithm: NEXTN, speculative-eagle-topk: 1, speculative-num-steps"


def test_loopback_addresses_where_all_share_one_host(said: Said) -> None:
    env = "{env: {GLOO_SOCKET_IFNAME: lo, NCCL_SOCKET_IFNAME: lo}}"
    assert said(cluster=ONE_NODE, defaults=env) == []
    text = f"schema: pdctl/v1\nname: demo\nmodel: {MLA}\nengine: {{kind: sglang}}\ncluster: {ONE_NODE}\n"
    topology, _ = with_facts(load_text(f"{text}prefill: {{}}\ndecode: {{}}\n").require(), lambda path: None)
    assert "PD424" not in {each.code for each in check(topology)}


@pytest.mark.parametrize(("prefill", "decode"), [("tp: 8", "tp: 1"), ("tp: 4, attn_dp: 4", "tp: 4")])
def test_unequal_attention_widths_of_mla_models(said: Said, prefill: str, decode: str) -> None:
    for backend in ("mooncake", "nixl", "ascend", "mori"):
        found = said(
            model=MLA,
            transfer=f"{{backend: {backend}}}",
            prefill=f"{{parallel: {{{prefill}}}}}",
            decode=f"{{parallel: {{{decode}}}}}",
        )
        assert found == []


def test_deepseek_v4_counts_as_mla(said: Said) -> None:
    found = said(
        model="{path: /models/v4, served_name: deepseek-ai/DeepSeek-V4-Pro}",
        transfer="{backend: nixl}",
        version="0.5.17",
        prefill="{parallel: {tp: 4, attn_dp: 4, ep: 4}}",
        decode="{parallel: {tp: 4}, args: {context-length: 9000}}",
    )
    assert found == []


def test_unequal_attention_dp_with_equal_widths(said: Said) -> None:
    assert (
        said(prefill="{parallel: {tp: 4, attn_dp: 2}}", decode="{nodes: 2, parallel: {tp: 16, attn_dp: 8}}")
        == []
    )


def test_prefill_stages_feed_decode_without(said: Said) -> None:
    assert said(prefill="{parallel: {tp: 4, pp: 4}, nodes: 2}", decode="{parallel: {tp: 4}}") == []


def test_context_parallel_prefill_feeds_attention_dp(said: Said) -> None:
    found = said(
        model="{path: /models/glm, attention: mla}",
        prefill="{parallel: {tp: 8, attn_cp: 8}}",
        decode="{parallel: {tp: 8, attn_dp: 8}}",
    )
    assert found == []


def test_step_counts_that_differ_by_role(said: Said) -> None:
    found = said(prefill=f"{{args: {{{NEXTN}: 1}}}}", decode=f"{{args: {{{NEXTN}: 3}}}}")
    assert found == []


def test_drafting_on_decode_alone_over_nixl(said: Said) -> None:
    assert said(transfer="{backend: nixl}", decode=f"{{args: {{{NEXTN}: 3}}}}") == []


def test_settings_of_one_role(said: Said) -> None:
    prefill = "{args: {chunked-prefill-size: -1, mem-fraction-static: 0.8, moe-runner-backend: triton}}"
    decode = "{args: {context-length: 8192, mem-fraction-static: 0.9, deepep-mode: low_latency}}"
    assert said(prefill=prefill, decode=decode) == []


def test_fabric_variables_beside_nixl(said: Said) -> None:
    env = '{env: {MC_FORCE_MNNVL: "1", NCCL_MNNVL_ENABLE: "1", SGLANG_MOONCAKE_CUSTOM_MEM_POOL: "True"}}'
    assert (
        said(transfer="{backend: nixl}", defaults=env, cluster="{executor: ssh, devices_per_node: 8}") == []
    )


def test_one_bootstrap_port_for_decode_instances_of_a_host(said: Said) -> None:
    assert said(cluster="{executor: ssh, devices_per_node: 8}", decode="{instances: 4}") == []


def test_a_dispatch_limit_that_is_just_met(said: Said) -> None:
    """Ascend's published deployment: 22 requests times 4 draft tokens is its limit of 88."""
    decode = (
        "{nodes: 2, parallel: {tp: 16, attn_dp: 16},"
        ' env: {SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK: "88"},'
        f" args: {{moe-a2a-backend: deepep, cuda-graph-bs: [8, 22], max-running-requests: 352, {NEXTN}: 3,"
        " speculative-num-draft-tokens: 4}}"
    )
    prefill = f"{{args: {{{NEXTN}: 3}}}}"
    assert said(model="{path: /m, attention: mla}", version="0.5.9", prefill=prefill, decode=decode) == []
