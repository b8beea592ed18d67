"""Topology and inventory to launch plan."""

from __future__ import annotations

from dataclasses import replace

from pdctl.compiler import compile_plan
from pdctl.plan.consistency import inconsistencies
from pdctl.topology.model import Health, Model, Settings


def test_argv_of_every_process_of_a_small_deployment(make_topology, make_inventory, reference_programs):
    topology = make_topology(
        model=Model(path="builtin:tiny"),
        defaults=Settings(args={"page-size": 16, "dtype": "float32"}, env={"A": "1"}),
        decode={"args": {"page-size": 32, "quiet": False}, "env": {"B": "2"}},
    )
    plan = compile_plan(topology, make_inventory(1), reference_programs)
    prefill, decode, router = plan.processes
    assert prefill.argv == (
        *("python3", "-m", "runtime.engine", "--model-path", "builtin:tiny", "--served-model-name", "tiny"),
        *("--host", "10.0.0.1", "--port", "30000", "--disaggregation-mode", "prefill"),
        *("--disaggregation-transfer-backend", "tcp", "--disaggregation-bootstrap-port", "8998"),
        *("--page-size", "16", "--dtype", "float32"),
    )
    assert decode.argv == (
        *("python3", "-m", "runtime.engine", "--model-path", "builtin:tiny", "--served-model-name", "tiny"),
        *("--host", "10.0.0.1", "--port", "30100", "--disaggregation-mode", "decode"),
        *("--disaggregation-transfer-backend", "tcp", "--page-size", "32", "--dtype", "float32"),
    )
    assert decode.env == {"A": "1", "B": "2"}
    assert router.argv == (
        *("python3", "-m", "runtime.router", "--host", "10.0.0.1", "--port", "8000"),
        *("--prefill", "http://10.0.0.1:30000", "8998", "--decode", "http://10.0.0.1:30100"),
        *("--health-check-interval-secs", "5"),
    )
    assert router.after == ("prefill-0.0", "decode-0.0")
    pull = ("python3", "-m", "runtime.models", "pull", "builtin:tiny", "--progress", "json")
    assert prefill.prepare == pull


def test_equal_input_gives_equal_digests(make_topology, make_inventory, reference_programs):
    first = compile_plan(make_topology(), make_inventory(1), reference_programs)
    second = compile_plan(make_topology(), make_inventory(1), reference_programs)
    assert first == second
    assert len(first.digest) == 64


def test_a_deadline_changes_the_plan_but_no_process_digest(make_topology, make_inventory, reference_programs):
    before = compile_plan(make_topology(), make_inventory(1), reference_programs)
    topology = make_topology(health=Health(ready_deadline_s=5.0, stop_grace_s=1.0))
    after = compile_plan(topology, make_inventory(1), reference_programs)
    assert after.topology_digest != before.topology_digest
    assert after.digest == before.digest


def test_a_change_of_decode_leaves_the_digest_of_prefill_and_router(
    make_topology, make_inventory, reference_programs
):
    before = compile_plan(make_topology(), make_inventory(1), reference_programs)
    topology = make_topology(decode={"args": {"max-running-requests": 4}})
    after = compile_plan(topology, make_inventory(1), reference_programs)
    changed = [
        old.id for old, new in zip(before.processes, after.processes, strict=True) if old.digest != new.digest
    ]
    assert changed == ["decode-0.0"]


def test_only_nodes_with_processes_are_in_the_plan(make_topology, make_inventory, reference_programs):
    plan = compile_plan(make_topology(), make_inventory(5), reference_programs)
    assert [node.name for node in plan.nodes] == ["n1", "n2"]


def test_an_ipv6_address_is_bracketed_in_urls(make_topology, make_inventory, reference_programs):
    inventory = make_inventory(1)
    node = replace(inventory.nodes[0], address="fd00::1")
    plan = compile_plan(make_topology(), replace(inventory, nodes=(node,)), reference_programs)
    assert "http://[fd00::1]:30000" in plan.processes[-1].argv
    assert plan.processes[0].ready is not None
    assert plan.processes[0].ready.url == "http://[fd00::1]:30000/health"


def test_on_shared_devices_an_instance_starts_after_the_other_serves(
    make_topology, make_inventory, reference_programs
):
    """And the plan says so with enough for its consistency check, which else finds a device given twice."""
    topology = make_topology(decode={"devices_of": "prefill"})
    plan = compile_plan(topology, make_inventory(1, 1), reference_programs)
    assert [process.after for process in plan.processes[:2]] == [(), ("prefill-0.0",)]
    assert inconsistencies(plan) == ()
    prefill, decode, router = plan.processes
    at_once = replace(plan, processes=(prefill, replace(decode, after=()), router))
    assert "device 0 of `n1` is `prefill-0.0`'s" in [each.message for each in inconsistencies(at_once)]
