"""Nodes of different names that are one machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdctl.compiler import compile_plan
from pdctl.doctor.checks.machines import check_machines
from pdctl.inventory import Inventory, Node

ONE = {"machine": "one boot 4026531840"}


@pytest.fixture
def found(make_topology, reference_programs, make_survey):
    """What is told of nodes with these addresses; `n1` and `n2`, with prefill, are one machine."""

    def of(*addresses: str, executor: str = "ssh", num_prefills: int = 2) -> list[str]:
        nodes = tuple(Node(name=f"n{number}", address=address) for number, address in enumerate(addresses, 1))
        topology = make_topology(
            prefill={"instances": num_prefills, "on": tuple(f"n{n}" for n in range(1, 1 + num_prefills))},
            decode={"on": (nodes[-1].name,)},
        )
        plan = replace(compile_plan(topology, Inventory(nodes=nodes), reference_programs), executor=executor)
        findings = check_machines(make_survey(plan, on={"n1": ONE, "n2": ONE}))
        return [f"{each.standing} {each.node}: {'; '.join((each.text, *each.notes))}" for each in findings]

    return of


def test_names_of_one_machine_whose_processes_would_take_the_same_port_are_an_error(found) -> None:
    told = "n[1-2] are one machine, where their processes collide; "
    told += "prefill-[0-1].0 would listen on the same port 30000; "
    told += "prefill-[0-1].0 would listen on the same port 8998"
    assert found("alpha", "alpha.example", "n3") == [f"error n1: {told}", f"error n2: {told}"]


def test_a_wildcard_collides_with_every_address(found) -> None:
    assert all(each.startswith("error ") for each in found("alpha", "10.0.0.1", "n3"))


def test_the_same_devices_are_an_error_whatever_the_addresses(make_sglang_plan, make_survey) -> None:
    survey = make_survey(replace(make_sglang_plan(), executor="ssh"), on={"n1": ONE, "n3": ONE})
    (first, _other) = check_machines(survey)
    assert (first.code, first.notes) == ("PD436", ("n[1,3] use the same devices, 0, 1, 2, 3, 4, 5, 6, 7",))


def test_one_machine_under_two_names_with_nothing_in_common_is_a_warning(found) -> None:
    assert [each.partition(";")[0] for each in found("alpha", "alpha.example", num_prefills=1)] == [
        "warning n1: n[1-2] are one machine",
        "warning n2: n[1-2] are one machine",
    ]


def test_addresses_of_its_own_for_each_node_make_one_machine_as_good_as_several(found) -> None:
    assert [each.partition(" ")[0] for each in found("127.0.0.2", "127.0.0.3", "n3")] == ["ok", "ok"]


def test_machines_of_their_own_and_the_machine_that_stands_for_all_are_passed_over(
    found, make_survey
) -> None:
    assert list(check_machines(make_survey())) == []
    assert found("alpha", "alpha.example", executor="local") == []
