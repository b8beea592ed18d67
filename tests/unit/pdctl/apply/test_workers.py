"""The router must know every instance, and each pair must serve."""

from __future__ import annotations

import json

import pytest

from pdctl.apply.pairs import run_pairs
from pdctl.apply.workers import require_workers
from pdctl.diagnostics import DiagnosticError
from pdctl.events import Verified
from pdctl.executors.calls import ProbeAnswer


class Asked:
    """Nodes that answer each request as a function says, and remember what was asked."""

    def __init__(self, answer) -> None:
        self._answer = answer
        self.requests = []

    def probe(self, requests):
        self.requests.extend(requests)
        return tuple(self._answer(request) for request in requests)


def _list_of(plan, **healthy: bool) -> ProbeAnswer:
    workers = [
        {"url": f"http://{each.http}", "is_healthy": healthy[each.role.value]}
        for each in plan.instances
        if each.role.value in healthy
    ]
    return ProbeAnswer(status=200, body=json.dumps({"workers": workers}))


def test_a_router_that_lists_all_instances_is_ready(plan, clock):
    nodes = Asked(lambda _: _list_of(plan, prefill=True, decode=True))
    require_workers(plan, nodes, clock=clock)
    assert [request.url for request in nodes.requests] == [f"http://{plan.router.http}/workers"]


def test_a_router_gets_time_to_see_its_workers(plan, clock):
    lists = [_list_of(plan, prefill=True), _list_of(plan, prefill=True, decode=False)]
    lists.append(_list_of(plan, prefill=True, decode=True))
    require_workers(plan, Asked(lambda _: lists.pop(0)), clock=clock)
    assert lists == []


@pytest.mark.parametrize(
    ("healthy", "why"),
    [({"prefill": True}, "it does not list"), ({"prefill": True, "decode": False}, "it finds")],
)
def test_a_router_without_an_instance_is_told(plan, clock, healthy, why):
    with pytest.raises(DiagnosticError) as raised:
        require_workers(plan, Asked(lambda _: _list_of(plan, **healthy)), clock=clock)
    (fault,) = raised.value.diagnostics
    assert (fault.code, fault.message) == ("PD612", "the router does not send requests to decode-0")
    assert fault.notes[0].startswith(why)


@pytest.mark.parametrize("status", [401, 404])
def test_a_router_that_does_not_tell_is_taken_at_its_word(plan, clock, status):
    require_workers(plan, Asked(lambda _: ProbeAnswer(status=status)), clock=clock)


def test_both_halves_of_a_pair_get_the_same_rendezvous(plan, clock, sink):
    nodes = Asked(lambda _: ProbeAnswer(status=200, body='{"text": " Paris"}'))
    run_pairs(plan, nodes, sink=sink, clock=clock)
    prefill, decode = nodes.requests
    assert prefill.body == decode.body
    body = json.loads(prefill.body)
    instance = next(each for each in plan.instances if each.id == "prefill-0")
    assert (body["bootstrap_host"], body["bootstrap_port"]) == (instance.http.host, instance.bootstrap.port)
    assert 0 <= body["bootstrap_room"] < 2**63
    assert isinstance(sink.events[-1], Verified)
    assert sink.events[-1].text == " Paris"


def test_pairs_that_fail_are_all_told(plan, clock, sink):
    def answer(request) -> ProbeAnswer:
        is_prefill = request.url.endswith(_prefill_end(plan))
        return ProbeAnswer(status=200, body='{"text": "x"}') if is_prefill else ProbeAnswer(error="no answer")

    with pytest.raises(DiagnosticError) as raised:
        run_pairs(plan, Asked(answer), sink=sink, clock=clock)
    (fault,) = raised.value.diagnostics
    assert (fault.code, fault.message) == (
        "PD613",
        "1 of 1 pairs of prefill and decode can't serve a request",
    )
    assert fault.notes == ("`prefill-0` with `decode-0`: decode answered no answer",)


def _prefill_end(plan) -> str:
    instance = next(each for each in plan.instances if each.id == "prefill-0")
    return f"{instance.http}/generate"
