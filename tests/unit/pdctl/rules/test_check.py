"""All rules together."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.diagnostics import has_errors
from pdctl.models.resolve import with_facts
from pdctl.resources import resource_path
from pdctl.rules import all_rules, check
from pdctl.topology.load import load, load_text

TEXT = """\
schema: pdctl/v1
name: demo
model: {path: /x}
engine: {kind: reference}
router: {port: 80, policy: fastest}
decode: {args: {page-size: 64, port: 1}}
prefill: {parallel: {pp: 2}}
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


# Warnings that a published deployment deserves: it is shown as it was measured.
REMARKS = {
    "deepseek_v3": ["PD306"],  # decode takes shorter requests than prefill
    "gb200_mnnvl": ["PD273"],  # the dispatch limit is as large as the largest graph
}


@pytest.mark.parametrize(
    "path", sorted(resource_path("topologies").glob("*.yaml")), ids=lambda path: path.stem
)
def test_shipped_topologies_pass_but_for_known_remarks(path: Path) -> None:
    environ = {"SGLANG_MODEL": "/models/some", "SGLANG_PYTHON": "python3"}
    topology, faults = with_facts(load(str(path), environ=environ).require())
    found = (*faults, *check(topology))
    assert [each.code for each in found] == REMARKS.get(path.stem, [])
    assert not has_errors(found)
