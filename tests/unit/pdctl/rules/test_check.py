"""All rules together."""

from __future__ import annotations

import pytest

from pdctl.resources import resource_path
from pdctl.rules import all_rules, check
from pdctl.topology.load import load, load_text

TEXT = """\
schema: pdctl/v1
name: demo
model: {path: x}
engine: {kind: reference}
router: {port: 80, policy: fastest}
decode: {args: {page-size: 64, port: 1}}
prefill: {parallel: {tp: 2}}
"""


def test_findings_come_in_the_order_of_the_document() -> None:
    found = [
        (each.code, each.span.line) for each in check(load_text(TEXT).require()) if each.span is not None
    ]
    assert found == [("PD409", 5), ("PD212", 5), ("PD302", 6), ("PD220", 6), ("PD210", 7)]


def test_engine_and_router_bring_their_own_rules() -> None:
    codes = {rule.code for rule in all_rules(load_text(TEXT).require())}
    assert {"PD210", "PD212"} <= codes


def test_a_rule_only_says_its_own_code() -> None:
    topology = load_text(TEXT).require()
    for rule in all_rules(topology):
        assert {each.code for each in rule.check(topology)} <= {rule.code}


@pytest.mark.parametrize(
    "path", sorted(resource_path("topologies").glob("*.yaml")), ids=lambda path: path.stem
)
def test_shipped_topologies_pass_without_a_word(path: object) -> None:
    assert check(load(str(path), environ={}).require()) == ()
