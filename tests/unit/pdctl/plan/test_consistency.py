"""A plan that the compiler makes agrees with itself; one that was edited does not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pdctl import plugins
from pdctl.compiler import Programs, compile_plan
from pdctl.diagnostics import DiagnosticError
from pdctl.inventory import Inventory, Node
from pdctl.plan.agreement import Inconsistency
from pdctl.plan.argv import flags_of
from pdctl.plan.consistency import inconsistencies
from pdctl.plan.digest import digest, process_digest
from pdctl.plan.model import LaunchPlan, PortClaim, ProcessSpec
from pdctl.topology.model import Cluster, Engine, Host, Model, Parallel, Role, Router, Topology, Transfer

NUM_DEVICES = 8


def compiled(topology: Topology) -> LaunchPlan:
    engine = plugins.program("engines", topology.engine.kind)
    router = plugins.program("routers", topology.router.kind)
    assert engine is not None
    assert router is not None
    assert isinstance(topology.cluster.nodes, tuple)
    nodes = tuple(
        Node(name=host.name, address=host.address or host.name, num_devices=NUM_DEVICES)
        for host in topology.cluster.nodes
    )
    return compile_plan(topology, Inventory(nodes=nodes), Programs(engine=engine, router=router))


def deployment(prefill: Role, decode: Role, *, num_nodes: int, version: str = "0.5.23") -> Topology:
    hosts = tuple(Host(name=f"n{number}", address=f"10.0.0.{number}") for number in range(1, num_nodes + 1))
    return Topology(
        schema="pdctl/v1",
        name="test",
        model=Model(path="/models/m", attention="mla"),
        engine=Engine(kind="sglang", version=version),
        cluster=Cluster(executor="ssh", nodes=hosts, devices_per_node=NUM_DEVICES),
        transfer=Transfer(backend="mooncake"),
        prefill=prefill,
        decode=decode,
        router=Router(kind="sglang_router"),
    )


def two_by_two() -> LaunchPlan:
    """Two prefill instances of two nodes each, two decode instances on halves of a node."""
    parallel = Parallel(tp=16, attn_dp=16)
    prefill = Role(name="prefill", instances=2, nodes=2, parallel=parallel, args={"page-size": 64})
    decode = Role(name="decode", instances=2, parallel=Parallel(tp=4), args={"page-size": 64})
    return compiled(deployment(prefill, decode, num_nodes=5))


@st.composite
def roles(draw: st.DrawFn, name: str) -> Role:
    num_nodes = draw(st.sampled_from([None, None, 1, 2, 3]))
    tp = draw(st.sampled_from([1, 2, 4, 8])) if num_nodes is None else num_nodes * NUM_DEVICES
    attn_dp = draw(st.sampled_from([each for each in (1, 2, 4, 8, 16) if tp % each == 0]))
    port = draw(st.sampled_from([None, 30000, 31000]))
    return Role(
        name=name,  # type: ignore[arg-type]
        instances=draw(st.integers(1, 4)),
        nodes=num_nodes,
        parallel=Parallel(tp=tp, attn_dp=attn_dp),
        port=port,
        args=draw(st.sampled_from([{}, {"page-size": 64, "disable-radix-cache": True}])),
    )


@st.composite
def plans(draw: st.DrawFn) -> LaunchPlan:
    topology = deployment(
        draw(roles("prefill")),
        draw(roles("decode")),
        num_nodes=draw(st.integers(1, 8)),
        version=draw(st.sampled_from(["0.5.9", "0.5.17", "0.5.23"])),
    )
    try:
        return compiled(topology)
    except DiagnosticError:
        assume(condition=False)  # no room, or requested ports that clash
        raise


quickly = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


@quickly
@given(plans())
def test_devices_and_ports_are_disjoint_ranks_complete_and_all_agrees(plan: LaunchPlan):
    assert inconsistencies(plan) == ()
    addresses = {node.name: node.address for node in plan.nodes}
    devices = Counter((each.node, index) for each in plan.processes for index in each.device_indices)
    ports = Counter((addresses[each.node], claim.port) for each in plan.processes for claim in each.ports)
    assert set(devices.values()) == {1}
    assert set(ports.values()) == {1}
    for instance in plan.instances:
        ranks = [each.node_rank for each in plan.processes if each.instance_id == instance.id]
        assert ranks == list(range(len(instance.process_ids)))


@quickly
@given(plans(), st.data())
def test_one_word_changed_anywhere_is_found(plan: LaunchPlan, data: st.DataObject):
    process = data.draw(st.sampled_from(plan.processes))
    at = data.draw(st.integers(1, len(process.argv) - 1))
    argv = (*process.argv[:at], f"{process.argv[at]}9", *process.argv[at + 1 :])
    assert inconsistencies(with_process(plan, replace(process, argv=argv)))


@quickly
@given(plans(), st.data())
def test_two_devices_swapped_are_found(plan: LaunchPlan, data: st.DataObject):
    holders = [each for each in plan.processes if each.device_indices]
    first = data.draw(st.sampled_from(holders))
    second = next((each for each in holders if each.node == first.node and each.id != first.id), None)
    assume(second is not None)
    assert second is not None
    swapped = with_process(plan, replace(first, device_indices=second.device_indices))
    swapped = with_process(swapped, replace(second, device_indices=first.device_indices))
    assert inconsistencies(swapped)
    assert places(signed(swapped)) >= {first.id, second.id}


@pytest.mark.parametrize("process_id", ["prefill-0.0", "prefill-0.1", "prefill-1.1", "decode-1.0"])
def test_a_flag_changed_on_one_rank_is_found_even_when_the_digests_were_made_anew(process_id: str):
    plan = two_by_two()
    process = the(plan, process_id)
    for name in flags_of(process.argv).keys() - {"host"}:
        found = inconsistencies(
            signed(with_process(plan, replace(process, argv=changed(process.argv, name))))
        )
        assert found, f"`--{name}` changed on {process_id}"


@pytest.mark.parametrize("process_id", ["prefill-0.0", "prefill-1.1"])
def test_a_dropped_bootstrap_port_is_found(process_id: str):
    plan = two_by_two()
    process = the(plan, process_id)
    flag = process.argv.index("--disaggregation-bootstrap-port")
    argv = (*process.argv[:flag], *process.argv[flag + 2 :])
    assert process_id in places(signed(with_process(plan, replace(process, argv=argv))))


def test_a_bootstrap_port_dropped_from_the_router_or_the_claims_is_found():
    plan = two_by_two()
    router = the(plan, "router-0.0")
    at = router.argv.index("--prefill")
    argv = (*router.argv[: at + 2], *router.argv[at + 3 :])
    assert places(signed(with_process(plan, replace(router, argv=argv)))) == {"router-0.0"}

    leader = the(plan, "prefill-0.0")
    ports = tuple(claim for claim in leader.ports if claim.name != "bootstrap")
    assert places(with_process(plan, replace(leader, ports=ports))) == {"prefill-0"}


def test_one_device_or_port_given_twice_is_found():
    plan = two_by_two()
    first, second = the(plan, "decode-0.0"), the(plan, "decode-1.0")
    assert "decode-1.0" in places(with_process(plan, replace(second, device_indices=first.device_indices)))
    ports = (*second.ports, PortClaim(name="another", port=first.ports[0].port))
    assert "decode-1.0" in places(with_process(plan, replace(second, ports=ports)))


def test_a_missing_rank_is_found():
    plan = two_by_two()
    gone = replace(plan, processes=tuple(each for each in plan.processes if each.id != "prefill-0.1"))
    assert {"test", "prefill-0", "prefill-0.0"} <= places(gone)


def test_a_finding_names_the_place_and_both_sides():
    plan = two_by_two()
    process = the(plan, "prefill-0.1")
    edited = signed(with_process(plan, replace(process, argv=changed(process.argv, "page-size"))))
    assert str(inconsistencies(edited)[0]) == (
        "`prefill-0.1`: has --page-size 649, `prefill-0.0` has --page-size 64"
    )


def changed(argv: tuple[str, ...], name: str) -> tuple[str, ...]:
    """With another value of a flag, or without it where it is a switch."""
    at = argv.index(f"--{name}")
    if at + 1 == len(argv) or argv[at + 1].startswith("--"):
        return (*argv[:at], *argv[at + 1 :])
    return (*argv[: at + 1], f"{argv[at + 1]}9", *argv[at + 2 :])


def the(plan: LaunchPlan, process_id: str) -> ProcessSpec:
    process = plan.process(process_id)
    assert process is not None
    return process


def with_process(plan: LaunchPlan, changed: ProcessSpec) -> LaunchPlan:
    processes = tuple(changed if each.id == changed.id else each for each in plan.processes)
    return replace(plan, processes=processes)


def signed(plan: LaunchPlan) -> LaunchPlan:
    """With digests made anew, as whoever edits a plan by program would."""
    processes = tuple(replace(each, digest=process_digest(each)) for each in plan.processes)
    return replace(plan, processes=processes, digest=digest([[each.id, each.digest] for each in processes]))


def places(plan: LaunchPlan) -> set[str]:
    found: tuple[Inconsistency, ...] = inconsistencies(plan)
    return {each.place for each in found}
