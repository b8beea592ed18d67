"""Plans of SGLang topologies, from a few lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pdctl import plugins
from pdctl.compiler import Programs, compile_plan
from pdctl.inventory import declared
from pdctl.models.facts import ModelFacts
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.topology.load import load_text

HEAD = """\
schema: pdctl/v1
name: demo
model: {{path: /models/demo, attention: {attention}}}
engine: {{kind: sglang, version: "{version}"}}
cluster: {{executor: ssh, devices_per_node: 8, nodes: [{nodes}]}}
"""
NODES = ", ".join(f"{{name: n{number}, address: 10.0.0.{number}}}" for number in range(1, 5))


def plan_from(
    lines: str, *, version: str = "0.5.23", attention: str = "gqa", nodes: str = NODES
) -> LaunchPlan:
    head = HEAD.format(version=version, attention=attention, nodes=nodes)
    missing = "".join(f"{role}: {{}}\n" for role in ("prefill", "decode") if f"{role}:" not in lines)
    missing += "" if "transfer:" in lines else "transfer: {backend: mooncake}\n"
    topology = load_text(head + lines + missing).require()
    topology = replace(topology, facts=ModelFacts(attention=topology.model.attention))
    engine = plugins.program("engines", topology.engine.kind)
    router = plugins.program("routers", topology.router.kind)
    assert engine is not None
    assert router is not None
    return compile_plan(topology, declared(topology.cluster), Programs(engine=engine, router=router))


@pytest.fixture
def process() -> Callable[..., ProcessSpec]:
    """`process(lines, "decode-0.0")`: one process of the plan of those lines."""

    def of(lines: str, process_id: str, **changes: str) -> ProcessSpec:
        found = plan_from(lines, **changes).process(process_id)
        assert found is not None
        return found

    return of


@pytest.fixture
def plan() -> Callable[..., LaunchPlan]:
    return plan_from
