"""`--engine reference`: the plan of a topology on this machine, with what that leaves out said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pdctl import plugins, rules
from pdctl.compiler import Programs, compile_plan
from pdctl.diagnostics import Diagnostic, Severity
from pdctl.executors.local import local_nodes
from pdctl.inventory import Inventory, declared
from pdctl.models.resolve import with_facts
from pdctl.plan.codec import plan_to_json
from pdctl.plan.model import LaunchPlan
from pdctl.rehearsal import rehearsed, with_shared_heads
from pdctl.topology.load import load, load_text
from pdctl.topology.model import Topology

TOPOLOGIES = Path(__file__).parents[3] / "topologies"
FOR_SGLANG = sorted(
    path.stem
    for path in TOPOLOGIES.glob("*.yaml")
    if "kind: sglang," in path.read_text("utf-8") and path.stem != "sglang_cpu_1p1d"
)
SMALL = """schema: pdctl/v1
name: {name}
model: {{path: org/large, attention: gqa}}
engine: {{kind: sglang, version: "0.5.23"}}
{more}
prefill: {{args: {{page_size: 64, chunked-prefill-size: -1}}, env: {{NCCL_DEBUG: WARN}}}}
decode: {{args: {{page-size: 64}}}}
"""


def small(more: str = "", *, name: str = "small", sets: tuple[str, ...] = ()) -> Topology:
    text = SMALL.format(name=name, more=more)
    made, _ = rehearsed(load_text(text, sets=sets).require())
    return made


def ready(topology: Topology) -> tuple[Topology, tuple[Diagnostic, ...]]:
    """As planning makes it: rehearsed, with the facts of its model and heads that its ranks can share."""
    made, differences = rehearsed(topology)
    with_model, faults = with_facts(made)
    assert faults == ()
    return with_shared_heads(with_model), differences


def plan_of(topology: Topology, inventory: Inventory) -> LaunchPlan:
    engine = plugins.program("engines", topology.engine.kind)
    router = plugins.program("routers", topology.router.kind)
    assert engine is not None
    assert router is not None
    return compile_plan(topology, inventory, Programs(engine=engine, router=router))


def here(topology: Topology) -> Inventory:
    """The nodes that the local executor finds, whatever interpreter runs this test."""
    nodes = local_nodes(topology.cluster).nodes
    return Inventory(nodes=tuple(replace(node, python="python") for node in nodes))


@pytest.mark.parametrize("name", ["hetero_tp4_dp4", "deepseek_v3_2p2d"])
def test_a_rehearsal_has_its_golden_plan(name: str, golden: Callable[[str, str], None]) -> None:
    topology, _ = ready(load(str(TOPOLOGIES / f"{name}.yaml"), environ={}).require())
    plan = plan_of(topology, here(topology))
    golden(f"plans/{name}-rehearsal.json", json.dumps(plan_to_json(plan), indent=2) + "\n")


@pytest.mark.parametrize("name", FOR_SGLANG)
def test_a_shipped_topology_is_rehearsed_with_every_process_in_its_place(name: str) -> None:
    real = load(str(TOPOLOGIES / f"{name}.yaml"), environ={}).require()
    topology, (difference,) = ready(real)
    assert [each for each in rules.check(topology) if each.severity is Severity.ERROR] == []
    assert difference.code == "PD381"
    wanted = plan_of(with_facts(real)[0], declared(real.cluster))
    assert places(plan_of(topology, here(topology))) == places(wanted)


def places(plan: LaunchPlan) -> list[tuple[object, ...]]:
    """Node and devices of each process, and the HTTP port of the first instance of each role.

    The ports of others on the same node keep distances that depend on what else an engine listens on.
    """
    http = {each.id: each.http.port for each in plan.instances if each.id.endswith("-0")}
    return [(each.id, each.node, each.device_indices, http.get(each.instance_id)) for each in plan.processes]


def test_what_only_the_cluster_or_its_engine_has_is_left_out_and_said() -> None:
    real = load(str(TOPOLOGIES / "hetero_tp4_dp4.yaml"), environ={}).require()
    _, (difference,) = rehearsed(real)
    assert difference.severity is Severity.WARNING
    assert difference.notes == (
        "8 engine ranks on this machine, of about half a gigabyte each",
        "`builtin:smollm2-135m-instruct` takes the place of `Qwen/Qwen3-30B-A3B`",
        "left out of `defaults.args`: trust-remote-code",
        "left out of `transfer`: ib_devices",
        "left out of `transfer.staging`: pool_mb",
    )


def test_flags_that_engines_share_stay_under_their_own_name() -> None:
    made = small()
    assert dict(made.prefill.args) == {"page-size": 64}
    assert (made.decode.args, made.prefill.env) == ({"page-size": 64}, {})
    assert made.transfer.verify_kv


def test_what_set_says_is_kept() -> None:
    made = small(
        "transfer: {backend: mooncake, staging: {pool_mb: 4096}}",
        sets=(
            "model.path=./tiny",
            "name=mine",
            "transfer.backend=tcp",
            "transfer.verify_kv=false",
            "transfer.staging.pool_mb=8",
            "defaults.env={A: b}",
            "decode.args.kv-pool-mb=32",
            "prefill.env.NCCL_DEBUG=INFO",
        ),
    )
    assert (made.name, made.model.path, made.model.attention) == ("mine", "./tiny", None)
    assert (made.transfer.backend, made.transfer.verify_kv) == ("tcp", False)
    assert made.transfer.staging.pool_mb == 8
    assert (dict(made.defaults.env), dict(made.prefill.env)) == ({"A": "b"}, {"NCCL_DEBUG": "INFO"})
    assert made.decode.args["kv-pool-mb"] == 32


def test_a_model_is_served_under_the_name_of_the_one_it_stands_in_for() -> None:
    assert small().model.name == "org/large"


@pytest.mark.parametrize(
    ("written", "used"), [("mooncake_tcp", "mooncake"), ("nixl", "nixl"), ("ascend", "tcp"), ("mori", "tcp")]
)
def test_kv_moves_by_the_same_library_where_this_machine_can_have_it(written: str, used: str) -> None:
    assert small(f"transfer: {{backend: {written}}}").transfer.backend == used


def test_a_router_listens_on_this_machine() -> None:
    for host, kept in (("10.1.2.3", None), ("0.0.0.0", None), ("127.0.0.1", "127.0.0.1")):
        made = small(f"router: {{kind: sglang_router, host: {host}, python: /opt/venv/bin/python}}")
        assert (made.router.host, made.router.python) == (kept, None)


def test_the_name_is_its_own_and_no_longer_than_names_may_be() -> None:
    assert small().name == "small-rehearsal"
    assert small(name="x" * 63).name == "x" * 53 + "-rehearsal"


@pytest.mark.parametrize(
    ("prefill", "decode", "num_kv_heads"),
    [(1, 1, None), (3, 9, None), (4, 1, 4), (1, 2, 4), (4, 8, 8), (2, 3, 6), (16, 1, 16)],
)
def test_a_model_is_padded_to_what_both_sides_can_share(
    prefill: int, decode: int, num_kv_heads: int | None
) -> None:
    """The stand-in has 3 KV heads with 3 queries each."""
    sets = (f"prefill.parallel.tp={prefill}", f"decode.parallel.tp={decode}")
    topology, _ = ready(load_text(SMALL.format(name="small", more=""), sets=sets).require())
    assert topology.defaults.args.get("pad-kv-heads") == num_kv_heads
    assert [each.code for each in rules.check(topology)] == []


def test_a_width_that_the_reference_engine_lacks_is_refused_at_its_place() -> None:
    topology, _ = ready(
        load_text(SMALL.format(name="small", more=""), sets=("prefill.parallel.pp=2",)).require()
    )
    (fault,) = [each for each in rules.check(topology) if each.severity is Severity.ERROR]
    assert (fault.code, fault.path) == ("PD210", "prefill.parallel.pp")
