"""The topologies that ship for SGLang: each is without fault, and its plan is a golden file.

A golden plan is what people would start by hand, so a difference in it is a difference in what runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pdctl import plugins, rules
from pdctl.compiler import Programs, compile_plan
from pdctl.diagnostics import Severity
from pdctl.executors.local import local_nodes
from pdctl.inventory import declared
from pdctl.models.resolve import with_facts
from pdctl.plan.codec import plan_to_json
from pdctl.plan.consistency import inconsistencies
from pdctl.plan.model import LaunchPlan
from pdctl.topology.load import load
from pdctl.topology.model import Topology

TOPOLOGIES = Path(__file__).parents[3] / "topologies"
SHIPPED = (
    "ascend_1p1d",
    "deepseek_v3",
    "deepseek_v3_2p2d",
    "gb200_mnnvl",
    "gpt_oss_2p2d",
    "h200_1p1d",
    "hetero_tp4_dp4",
    "llama_1p1d",
    "qwen3_nixl",
)
# What pdctl warns of although the deployment was published as working.
WARNINGS = {"deepseek_v3": {"PD306"}, "gb200_mnnvl": {"PD273"}}


def topology_of(name: str, *, sets: tuple[str, ...] = ()) -> Topology:
    loaded = load(str(TOPOLOGIES / f"{name}.yaml"), environ={}, sets=sets)
    topology, faults = with_facts(loaded.require())
    assert faults == ()
    return topology


def plan_of(topology: Topology) -> LaunchPlan:
    engine = plugins.program("engines", topology.engine.kind)
    router = plugins.program("routers", topology.router.kind)
    assert engine is not None
    assert router is not None
    nodes = local_nodes if topology.cluster.executor == "local" else declared
    return compile_plan(topology, nodes(topology.cluster), Programs(engine=engine, router=router))


def test_every_topology_for_sglang_is_here() -> None:
    found = {path.stem for path in TOPOLOGIES.glob("*.yaml") if "kind: sglang," in path.read_text("utf-8")}
    assert found - {"sglang_cpu_1p1d"} == set(SHIPPED)  # that one runs for real, in the end-to-end tests


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_topology_has_its_golden_plan(name: str, golden: Callable[[str, str], None]) -> None:
    plan = plan_of(topology_of(name))
    assert inconsistencies(plan) == ()
    golden(f"plans/{name}.json", json.dumps(plan_to_json(plan), indent=2) + "\n")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_topology_is_without_fault(name: str) -> None:
    found = rules.check(topology_of(name))
    assert [each.message for each in found if each.severity is Severity.ERROR] == []
    assert {each.code for each in found} == WARNINGS.get(name, set())


def test_the_wide_deployment_has_13_engine_processes_and_104_devices() -> None:
    plan = plan_of(topology_of("deepseek_v3"))
    engines = [process for process in plan.processes if process.role != "router"]
    assert len(engines) == 13
    assert sum(len(process.device_indices) for process in engines) == 104


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12.post1", "0.5.17", "0.5.20"])
def test_an_older_release_gets_its_own_spelling(version: str) -> None:
    plan = plan_of(topology_of("hetero_tp4_dp4", sets=(f"engine.version='{version}'",)))
    argv = next(process.argv for process in plan.processes if process.role == "decode")
    assert "--attn-dp-size" not in argv
    assert argv[argv.index("--dp-size") :][:3] == ("--dp-size", "4", "--enable-dp-attention")
