"""Deployments that others reported as failing: what our topology of each is told before anything starts.

`tests/golden/cases/a/expected.json` has the report, what is found (severity and code, in the order of the
document) and, where the answer isn't the one that the report asks for, why (`differs`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pdctl.compiler import Programs, compile_plan
from pdctl.diagnostics import Diagnostic, has_errors
from pdctl.engines.sglang import PROGRAM as SGLANG
from pdctl.inventory import declared
from pdctl.models.resolve import with_facts
from pdctl.plan.model import LaunchPlan
from pdctl.routers.sglang_router import PROGRAM as ROUTER
from pdctl.rules import check
from pdctl.topology.load import load
from pdctl.topology.model import Topology

CASES = Path(__file__).parents[2] / "golden" / "cases" / "a"
EXPECTED: dict[str, dict[str, Any]] = json.loads((CASES / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_failed_deployment_is_told_so(name: str) -> None:
    topology, found = diagnose(name)
    assert [f"{each.severity} {each.code}" for each in found] == EXPECTED[name]["found"]
    if topology is not None and not has_errors(found):
        plan_of(topology)


def test_every_case_is_expected() -> None:
    assert {path.name for path in CASES.glob("*.yaml")} == set(EXPECTED)


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("006-bootstrap-port-on-prefill.yaml", "30089"),
        ("031-two-nodes-other-port.yaml", "9889"),
        ("014-bootstrap-on-decode.yaml", None),
    ],
)
def test_the_router_is_told_the_bootstrap_port_of_the_leader(name: str, entry: str | None) -> None:
    topology, found = diagnose(name)
    if entry is None:
        assert has_errors(found)
        return
    assert topology is not None
    argv = plan_of(topology).processes[-1].argv
    position = argv.index("--prefill")
    assert argv[position + 2] == entry
    assert argv.count("--prefill") == 1  # the leader alone


def test_every_server_of_a_host_has_an_nccl_port_of_its_own() -> None:
    topology, _ = diagnose("047-many-on-a-host.yaml")
    assert topology is not None
    engines = plan_of(topology).processes[:-1]
    ports = [process.argv[process.argv.index("--nccl-port") + 1] for process in engines]
    assert len(ports) == len(set(ports)) == 6


def diagnose(name: str) -> tuple[Topology | None, tuple[Diagnostic, ...]]:
    loaded = load(str(CASES / name), environ={})
    if loaded.topology is None:
        return None, loaded.diagnostics
    topology, faults = with_facts(loaded.topology)
    return topology, (*loaded.diagnostics, *faults, *check(topology))


def plan_of(topology: Topology) -> LaunchPlan:
    return compile_plan(topology, declared(topology.cluster), Programs(engine=SGLANG, router=ROUTER))
