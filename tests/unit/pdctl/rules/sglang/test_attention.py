"""Attention widths by model, backend and release."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Said = Callable[..., list[str]]

WIDE = {"prefill": "{parallel: {tp: 4}}", "decode": "{parallel: {tp: 2}}"}
GPT_OSS, QWEN35 = "{path: openai/gpt-oss-120b}", "{path: Qwen/Qwen3.5-397B-A17B}"
PINNED = "{args: {page-size: 64}}"


@pytest.mark.parametrize(
    ("backend", "version", "found"),
    [
        ("mooncake", "0.5.21", ["error PD317"]),
        ("mooncake", "0.5.22", []),
        ("mooncake_tcp", "0.5.21", ["error PD317"]),
        ("nixl", "0.5.21", ["error PD317"]),
        ("nixl", "0.5.22", []),
        ("mori", "0.5.23", ["error PD317"]),
        ("mori", "0.6.0", []),  # not read: not refused
    ],
)
def test_sliding_windows(said: Said, backend: str, version: str, found: list[str]) -> None:
    assert said(model=GPT_OSS, transfer=f"{{backend: {backend}}}", version=version, **WIDE) == found


@pytest.mark.parametrize(("version", "found"), [("0.5.10.post1", ["error PD317"]), ("0.5.11", [])])
def test_hybrid_models_over_nixl(said: Said, version: str, found: list[str]) -> None:
    transfer = "{backend: nixl}"
    assert said(model=QWEN35, transfer=transfer, defaults=PINNED, version=version, **WIDE) == found


@pytest.mark.parametrize(
    ("backend", "version", "is_wrong"),
    [
        ("mooncake", "0.5.15.post1", True),
        ("mooncake", "0.5.16", False),
        ("nixl", "0.5.16", True),
        ("nixl", "0.5.17", False),
    ],
)
def test_decode_ranks_that_share_kv_heads(said: Said, backend: str, version: str, is_wrong: bool) -> None:
    found = said(
        model=QWEN35,
        transfer=f"{{backend: {backend}}}",
        defaults=PINNED,
        version=version,
        prefill="{parallel: {tp: 4, attn_dp: 4}}",
        decode="{parallel: {tp: 4}}",
    )
    assert ("error PD319" in found) == is_wrong


def test_gathering_heads_was_never_wrong(said: Said) -> None:
    found = said(
        model=QWEN35,
        defaults=PINNED,
        version="0.5.12.post1",
        prefill="{parallel: {tp: 4}}",
        decode="{parallel: {tp: 4, attn_dp: 4}}",
    )
    assert found == []


@pytest.mark.parametrize(
    ("transfer", "version", "found"),
    [
        ("{backend: mooncake}", "0.5.23", []),
        ("{backend: nixl}", "0.5.12.post1", []),
        ("{backend: mooncake, staging: off}", "0.5.23", ["warning PD318"]),
        ("{backend: mooncake}", "0.5.9", ["warning PD318"]),  # it has no staging
        ("{backend: mori}", "0.5.23", ["warning PD318"]),
    ],
)
def test_grouped_heads_are_slow_without_staging(
    said: Said, transfer: str, version: str, found: list[str]
) -> None:
    assert said(transfer=transfer, version=version, **WIDE) == found


@pytest.mark.parametrize(("version", "found"), [("0.5.22", ["error PD317"]), ("0.5.21", [])])
def test_block_scales_are_not_cut(said: Said, version: str, found: list[str]) -> None:
    assert said(defaults="{args: {kv-cache-dtype: mxfp8}}", version=version, **WIDE) == found
    mla = "{path: mine, attention: mla}"
    assert said(model=mla, defaults="{args: {kv-cache-dtype: mxfp8}}", version=version, **WIDE) == []


def test_an_unknown_model_is_said_to_be_unknown(said: Said) -> None:
    assert said(model="{path: mine}", **WIDE) == ["warning PD320"]
    assert said(model="{path: mine, attention: mla}", **WIDE) == []
    assert said(model="{path: mine}") == []


def test_widths_of_which_none_divides_the_other(said: Said) -> None:
    model = "{path: mine, attention: mla}"
    found = said(model=model, prefill="{parallel: {tp: 6}}", decode="{parallel: {tp: 4}}")
    assert found == ["error PD316"]


@pytest.mark.parametrize(("tp", "found"), [(4, []), (8, []), (7, ["error PD279"] * 2)])
def test_heads_that_ranks_can_share(said: Said, tp: int, found: list[str]) -> None:
    role = f"{{parallel: {{tp: {tp}}}}}"
    assert said(prefill=role, decode=role) == found


def test_heads_are_padded_on_cpus(said: Said) -> None:
    role = "{parallel: {tp: 7}}"
    cpu = "{args: {device: cpu}}"
    assert said(cluster="{executor: ssh, nodes: 1}", defaults=cpu, prefill=role, decode=role) == []
