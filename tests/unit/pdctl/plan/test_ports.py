"""The port ledger, through compiled plans."""

from __future__ import annotations

import pytest

from pdctl.compiler import compile_plan
from pdctl.diagnostics import DiagnosticError
from pdctl.topology.model import Router


def ports(plan) -> dict[str, dict[str, int]]:
    return {process.id: {claim.name: claim.port for claim in process.ports} for process in plan.processes}


def test_defaults_count_up_per_node(make_topology, make_inventory, reference_programs):
    topology = make_topology(prefill={"instances": 2}, decode={"instances": 2})
    plan = compile_plan(topology, make_inventory(1), reference_programs)
    assert ports(plan) == {
        "prefill-0.0": {"http": 30000, "bootstrap": 8998},
        "prefill-1.0": {"http": 30001, "bootstrap": 8999},
        "decode-0.0": {"http": 30100},
        "decode-1.0": {"http": 30101},
        "router-0.0": {"http": 8000},
    }


def test_the_same_ports_are_used_again_on_another_node(make_topology, make_inventory, reference_programs):
    topology = make_topology(prefill={"instances": 2}, decode={"instances": 2})
    plan = compile_plan(topology, make_inventory(4), reference_programs)
    assert ports(plan)["prefill-1.0"] == {"http": 30000, "bootstrap": 8998}


def test_a_default_gives_way_to_a_requested_port(make_topology, make_inventory, reference_programs):
    topology = make_topology(router=Router(port=30000))
    plan = compile_plan(topology, make_inventory(1), reference_programs)
    assert ports(plan)["router-0.0"] == {"http": 30000}
    assert ports(plan)["prefill-0.0"] == {"http": 30001, "bootstrap": 8998}


def test_two_requested_ports_that_meet_are_an_error(make_topology, make_inventory, reference_programs):
    topology = make_topology(prefill={"instances": 2, "port": 30000}, decode={"port": 30001})
    with pytest.raises(DiagnosticError) as raised:
        compile_plan(topology, make_inventory(1), reference_programs)
    (fault,) = raised.value.diagnostics
    assert fault.code == "PD404"
    assert fault.message == "`decode-0.0` and `prefill-1.0` both claim port 30001 on 10.0.0.1"


def test_counting_past_the_highest_port_is_an_error(make_topology, make_inventory, reference_programs):
    topology = make_topology(decode={"instances": 2, "port": 65535})
    with pytest.raises(DiagnosticError) as raised:
        compile_plan(topology, make_inventory(1), reference_programs)
    assert [each.code for each in raised.value.diagnostics] == ["PD405"]
