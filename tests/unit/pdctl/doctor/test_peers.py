"""Who calls whom."""

from __future__ import annotations

from pdctl.doctor.peers import ANY_PORT, calls_of


def calls(plan):
    return {(call.caller, call.callee, call.port) for call in calls_of(plan)}


def test_the_router_calls_http_and_decode_calls_bootstrap_and_both_sides_move_data(make_plan):
    assert calls(make_plan(3)) == {
        ("n1", "n2", 30100),  # the router's node
        ("n1", "n3", 30100),
        ("n2", "n1", 8998),
        ("n3", "n1", 8998),
        ("n1", "n2", ANY_PORT),
        ("n1", "n3", ANY_PORT),
        ("n2", "n1", ANY_PORT),
        ("n3", "n1", ANY_PORT),
    }


def test_followers_call_their_leader(make_sglang_plan):
    plan = make_sglang_plan()
    (dist_init,) = {plan.process(f"{role}-0.0").port("dist-init") for role in ("prefill", "decode")}
    assert {("n2", "n1", dist_init), ("n4", "n3", dist_init)} <= calls(plan)
    assert ("n3", "n1", dist_init) not in calls(plan)


def test_nobody_calls_itself(make_plan):
    assert calls(make_plan(2)) == {
        ("n1", "n2", 30100),
        ("n2", "n1", 8998),
        ("n1", "n2", ANY_PORT),
        ("n2", "n1", ANY_PORT),
    }
