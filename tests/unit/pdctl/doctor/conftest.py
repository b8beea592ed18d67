"""Surveys as values: a plan over some nodes, each with the answer of a healthy one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pdctl import plugins
from pdctl.compiler import Programs, compile_plan
from pdctl.doctor.facts import Clock, Folder, Limits, ModelFiles, NodeFacts, Package, ProgramFacts
from pdctl.doctor.needs import NodeNeeds, needs_of
from pdctl.doctor.survey import EVERYTHING, Survey
from pdctl.executors.calls import PortAnswer, PortQuery
from pdctl.plan.model import LaunchPlan
from pdctl.topology.model import Engine, Parallel, Transfer

GIB = 1 << 30


@pytest.fixture
def make_plan(make_topology, make_inventory, reference_programs) -> Callable[..., LaunchPlan]:
    """Prefill on n1, decode on the others up to `num_nodes`, the router on n1."""

    def make(num_nodes: int = 3, **fields: object) -> LaunchPlan:
        decode = {"instances": num_nodes - 1, "on": tuple(f"n{number}" for number in range(2, num_nodes + 1))}
        topology = make_topology(prefill={"on": ("n1",)}, decode=decode, **fields)
        return compile_plan(topology, make_inventory(num_nodes), reference_programs)

    return make


@pytest.fixture
def make_sglang_plan(make_topology, make_inventory) -> Callable[..., LaunchPlan]:
    """One prefill over n1 and n2, one decode over n3 and n4, eight devices each, over RDMA."""

    def make(**transfer: object) -> LaunchPlan:
        role = {"nodes": 2, "parallel": Parallel(tp=16)}
        topology = make_topology(
            engine=Engine(kind="sglang", version="0.5.23"),
            transfer=Transfer(**{"backend": "mooncake", **transfer}),
            prefill=role,
            decode=role,
        )
        engine, router = plugins.program("engines", "sglang"), plugins.program("routers", "mini_lb")
        assert engine is not None
        assert router is not None
        return compile_plan(topology, make_inventory(4, 8), Programs(engine=engine, router=router))

    return make


@pytest.fixture
def make_survey(make_plan) -> Callable[..., Survey]:
    """`on={"n2": {…}}` replaces facts of a node; a node in `faults` has none."""

    def make(
        plan: LaunchPlan | None = None, on: dict[str, dict[str, object]] | None = None, **fields: object
    ) -> Survey:
        plan = plan or make_plan()
        needs = needs_of(plan)
        faults = fields.get("faults") or {}
        facts = {
            each.name: replace(healthy(each), **(on or {}).get(each.name, {}))
            for each in needs
            if each.name not in faults
        }
        return Survey(
            **{"plan": plan, "scope": EVERYTHING, "needs": needs, "facts": facts, "faults": {}, **fields}
        )

    return make


def healthy(needs: NodeNeeds) -> NodeFacts:
    return NodeFacts(
        clock=Clock(least_s=-0.1, most_s=0.2),
        machine=f"boot id of {needs.name}",
        python="3.11.7",
        limits=Limits(memlock_bytes=None, may_lock_all=False, open_files=1024, open_files_hard=1_048_576),
        folders=tuple(
            Folder(path=path, free_bytes=100 * GIB, total_bytes=200 * GIB, problem=None)
            for path in ("/root/.local/state/pdctl/run", "/tmp", "/dev/shm")
        ),
        programs=tuple(
            ProgramFacts(
                version="3.11.7",
                problem=None,
                packages=tuple(Package(name=name, is_found=True, version="1.0") for name in each.packages),
            )
            for each in needs.programs
        ),
        ports=tuple(
            PortAnswer(query=PortQuery(node=needs.name, host=need.process.listen, port=need.claim.port))
            for need in needs.ports
        ),
        deployments=(),
        devices=None,
        rdma=(),
        gpu_direct=None,
        models=tuple(
            ModelFiles(path=path, problem=None, num_files=3, num_bytes=8 * GIB, fingerprint="f1")
            for path in needs.models
        ),
    )
