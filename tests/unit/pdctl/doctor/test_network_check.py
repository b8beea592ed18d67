"""Connections between nodes: who is told of which failure, in which words."""

from __future__ import annotations

import pytest

from pdctl.doctor.checks.network import check_network
from pdctl.doctor.examine import examine
from pdctl.doctor.meeting import MET, NOT_DIALLED, CallOutcome
from pdctl.doctor.peers import ANY_PORT, calls_of

WORDS = {
    "silent": "no answer within 3 s",
    "refused": "connection refused",
    "stalled": "the connection opens, but full packets don't arrive",
    "stranger": "another program answers there",
    NOT_DIALLED: "",
}


@pytest.fixture
def network(make_plan, make_survey):
    """`network({("n2", "n1"): "silent"})` is all well but for these pairs, on all ports or those given."""

    def make(broken, *, ports=None, num_nodes=3):
        plan = make_plan(num_nodes)
        calls = tuple(
            CallOutcome(call=call, host="10.0.0.9", outcome=outcome, text=WORDS.get(outcome, ""))
            for call in calls_of(plan)
            for outcome in [
                broken.get((call.caller, call.callee), MET) if ports is None or call.port in ports else MET
            ]
        )
        return make_survey(plan, calls=calls)

    return make


def told(survey):
    return {each.node: (each.standing.value, each.code, each.text) for each in check_network(survey)}


def test_a_whole_network_is_well(network):
    assert set(told(network({})).values()) == {("ok", None, "reaches all peers on their ports")}


def test_one_blocked_direction_is_told_of_the_caller_and_that_the_other_works(network):
    survey = network({("n2", "n1"): "silent"})
    assert told(survey)["n2"] == (
        "error",
        "PD723",
        "no way to n1 on port 8998 and any high port: no answer within 3 s",
    )
    assert told(survey)["n1"][0] == "ok"
    (finding,) = [each for each in check_network(survey) if each.code]
    assert finding.notes == ("the other way round connections pass",)


def test_pairs_fold_on_both_sides(network):
    broken = {("n1", f"n{number}"): "refused" for number in range(2, 9)}
    broken |= {(f"n{number}", "n1"): "silent" for number in range(2, 9)}
    verdicts = [each for each in examine(network(broken, num_nodes=8)) if each.code]
    assert [(each.nodes, each.text) for each in verdicts] == [
        (("n1",), "no way to n[2-8] on port 30100 and any high port: connection refused"),
        (
            tuple(f"n{number}" for number in range(2, 9)),
            "no way to n1 on port 8998 and any high port: no answer within 3 s",
        ),
    ]
    message = "on n[2-8]: no way to n1 on port 8998 and any high port: no answer within 3 s"
    assert verdicts[1].diagnostic().message == message


def test_one_blocked_port_is_named_alone(network):
    survey = network({("n2", "n1"): "refused"}, ports=(8998,))
    assert told(survey)["n2"][2] == "no way to n1 on port 8998: connection refused"


def test_high_ports_alone_are_a_warning(network):
    survey = network({("n2", "n1"): "silent"}, ports=(ANY_PORT,))
    assert told(survey)["n2"][:2] == ("warning", "PD725")


@pytest.mark.parametrize(("outcome", "code"), [("stalled", "PD726"), ("stranger", "PD724")])
def test_lost_packets_and_strangers_are_faults_of_their_own(network, outcome, code):
    assert told(network({("n2", "n1"): outcome}))["n2"][:2] == ("error", code)


def test_a_peer_that_could_not_listen_proves_nothing(network):
    expected = ("skipped", None, "its peers could not be asked to listen")
    assert told(network({("n2", "n1"): NOT_DIALLED}))["n2"] == expected


def test_a_single_node_calls_nobody(
    make_plan, make_survey, make_topology, make_inventory, reference_programs
):
    from pdctl.compiler import compile_plan

    plan = compile_plan(make_topology(), make_inventory(1), reference_programs)
    assert told(make_survey(plan))["n1"] == ("skipped", None, "it calls no other node")
