"""Hints that can be followed, and messages that name what is there."""

from __future__ import annotations

import pytest

from pdctl.rules.pairing import RULES as PAIRING
from pdctl.rules.sglang import RULES
from pdctl.topology.load import load_text

HEAD = """\
schema: pdctl/v1
name: demo
model: {path: mine, attention: mla, context_length: 9000}
engine: {kind: sglang, version: "0.5.23"}
cluster: {executor: ssh, nodes: 8, devices_per_node: 8}
"""


def told(lines: str, code: str) -> tuple[str, str | None]:
    topology = load_text(HEAD + lines).require()
    found = [each for rule in (*RULES, *PAIRING) for each in rule.check(topology) if each.code == code]
    (one,) = dict.fromkeys(found)
    return one.message, one.help


@pytest.mark.parametrize(
    ("graph", "limit", "wanted"),
    [
        (
            256,
            128,
            'set `SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK: "256"` or more, or lower the largest graph',
        ),
        (1024, 1024, "lower the largest graph"),
        (2048, 1024, "lower the largest graph"),
    ],
)
def test_a_dispatch_limit_is_raised_only_where_it_can_be(graph: int, limit: int, wanted: str) -> None:
    _, help = told(
        "prefill: {parallel: {tp: 8, attn_dp: 8}}\n"
        "decode:\n"
        "  parallel: {tp: 8, attn_dp: 8}\n"
        f'  env: {{SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK: "{limit}"}}\n'
        f"  args: {{moe-a2a-backend: deepep, cuda-graph-max-bs-decode: {graph}, quantization: nvfp4}}\n",
        "PD273",
    )
    assert help == wanted


@pytest.mark.parametrize(
    ("prefill", "wanted"),
    [
        ("{}", "decode drafts by EAGLE, and prefill does without"),
        (
            "{args: {speculative-algorithm: NGRAM}}",
            "decode drafts by EAGLE, and prefill drafts by NGRAM, which has no KV",
        ),
    ],
)
def test_what_the_other_role_drafts_by_is_named(prefill: str, wanted: str) -> None:
    lines = f"prefill: {prefill}\ndecode: {{args: {{speculative-algorithm: EAGLE}}}}\n"
    assert told(f"transfer: {{backend: mooncake}}\n{lines}", "PD314")[0] == wanted


def test_a_shorter_context_on_decode_may_be_meant() -> None:
    lines = "prefill: {args: {context-length: 8192}}\ndecode: {args: {context-length: 4500}}\n"
    _, help = told(lines, "PD306")
    assert help == "keep requests within 4500 tokens, or set `context-length` once, under `defaults.args`"
