"""Start order, waiting, and the four ways in which a process doesn't come up."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest

from pdctl.apply.rollout import Rollout, RolloutOptions
from pdctl.diagnostics import DiagnosticError
from pdctl.events import Ready, Waiting
from pdctl.reconcile.model import Change, Op

EVERYTHING = ("prefill-0.0", "decode-0.0", "router-0.0")


@pytest.fixture
def spread(plan):
    """The same plan with a node for each process."""
    nodes = {"prefill-0.0": "n1", "decode-0.0": "n2", "router-0.0": "n3"}
    return replace(plan, processes=tuple(replace(each, node=nodes[each.id]) for each in plan.processes))


@pytest.fixture
def roll_out(plan, cluster, sink, clock):
    def run(to_start, *, plan=plan, scope=None, require_lock=lambda: None, **options):
        rollout = Rollout(
            plan=plan,
            observed=cluster.observe(plan.name),
            executor=cluster,
            sink=sink,
            clock=clock,
            options=RolloutOptions(**options),
            scope=scope,
            require_lock=require_lock,
        )
        rollout.run(
            {each: Change(op=Op.CREATE, process_id=each, node="n1", cause="not running") for each in to_start}
        )

    return run


def test_the_router_starts_when_the_engines_serve(roll_out, cluster, sink, script):
    cluster.scripts = {"decode-0.0": script(ready_after_s=5.0)}
    roll_out(EVERYTHING)
    assert cluster.calls[-1] == "start router-0.0"
    assert sink.text() == [
        *("starting prefill-0.0", "starting decode-0.0", "started prefill-0.0", "started decode-0.0"),
        *("ready prefill-0.0", "ready decode-0.0"),
        *("starting router-0.0", "started router-0.0", "ready router-0.0"),
    ]


def test_waiting_says_what_for_and_how_long(roll_out, cluster, sink, script):
    cluster.scripts = {"decode-0.0": script(ready_after_s=10.0, lines=("loading weights",))}
    roll_out(EVERYTHING)
    waits = [
        event for event in sink.events if isinstance(event, Waiting) and event.process_id == "decode-0.0"
    ]
    assert waits[0].reason == "HTTP 503"
    assert waits[0].last_line == "loading weights"
    assert waits[0].deadline_s == 600.0
    assert [wait.elapsed_s for wait in waits] == sorted(wait.elapsed_s for wait in waits)
    assert 5 <= len(waits) <= 10


def test_nothing_is_started_where_all_runs_and_serves(roll_out, plan, cluster, sink):
    cluster.start(plan, plan.processes)
    cluster.calls.clear()
    cluster.clock.sleep(60)
    roll_out(())
    assert cluster.calls == []
    assert sink.text() == []


def test_without_wait_everything_is_started_at_once(roll_out, cluster, clock):
    before = clock.now()
    roll_out(EVERYTHING, wait=False)
    assert sorted(cluster.calls) == ["start decode-0.0", "start prefill-0.0", "start router-0.0"]
    assert clock.now() == before


def test_a_process_that_exits_ends_the_rollout_with_its_last_lines(roll_out, cluster, sink, script):
    cluster.scripts = {
        "decode-0.0": script(ready_after_s=None, ends_after_s=3.0, lines=("loading", "error: no model"))
    }
    with pytest.raises(DiagnosticError) as raised:
        roll_out(EVERYTHING)
    (fault,) = raised.value.diagnostics
    assert fault.code == "PD602"
    assert fault.message == "`decode-0.0` exited with code 1 before the deployment was ready"
    assert fault.excerpts[0].lines == ("loading", "error: no model")
    assert "start router-0.0" not in cluster.calls
    assert sink.text()[-1] == "failed decode-0.0"


def test_all_that_failed_by_then_is_told_at_once(roll_out, cluster, script):
    dead = script(ready_after_s=None, ends_after_s=0.0)
    cluster.scripts = {"prefill-0.0": dead, "decode-0.0": dead}
    with pytest.raises(DiagnosticError) as raised:
        roll_out(EVERYTHING)
    assert [each.message.split()[0] for each in raised.value.diagnostics] == ["`prefill-0.0`", "`decode-0.0`"]


def test_a_process_that_was_ready_and_dies_while_others_load_is_noticed(roll_out, cluster, script):
    cluster.scripts = {
        "prefill-0.0": script(ready_after_s=1.0, ends_after_s=4.0),
        "decode-0.0": script(ready_after_s=30.0),
    }
    with pytest.raises(DiagnosticError, match=r"PD602: `prefill-0\.0` exited"):
        roll_out(EVERYTHING)


def test_a_process_that_hangs_is_given_up_at_its_deadline(roll_out, cluster, clock, script):
    cluster.scripts = {"decode-0.0": script(ready_after_s=None)}
    began = clock.now()
    with pytest.raises(DiagnosticError) as raised:
        roll_out(EVERYTHING, deadline_s=20.0)
    (fault,) = raised.value.diagnostics
    assert (fault.code, fault.message) == ("PD603", "`decode-0.0` was not ready within 20 s")
    assert "its last probe saw: HTTP 503" in fault.notes
    assert 20 < clock.now() - began < 22


def test_a_program_that_can_not_be_executed_is_told_with_its_name(roll_out, cluster, script):
    cluster.scripts = {"prefill-0.0": script(start_error="no such file: python9")}
    with pytest.raises(DiagnosticError) as raised:
        roll_out(EVERYTHING)
    (fault,) = raised.value.diagnostics
    assert fault.code == "PD601"
    assert fault.message == "`prefill-0.0` could not be started on `n1`: no such file: python9"


def test_readiness_is_told_with_the_time_that_it_took(roll_out, cluster, sink, script):
    cluster.scripts = {"prefill-0.0": script(ready_after_s=7.0)}
    roll_out(EVERYTHING)
    (ready,) = [e for e in sink.events if isinstance(e, Ready) and e.process_id == "prefill-0.0"]
    assert 7.0 <= ready.elapsed_s <= 8.0


# --- Nodes that are lost ------------------------------------------------------------------------------------


def test_a_short_cut_is_waited_out_and_said(roll_out, cluster, clock, sink, script, cut):
    cluster.scripts = {"decode-0.0": script(ready_after_s=30.0)}
    cluster.cuts = {"n1": cut(begins=clock.now() + 5, ends=clock.now() + 25)}
    roll_out(EVERYTHING)
    assert sink.text()[-1] == "ready router-0.0"
    reasons = [event.reason for event in sink.events if isinstance(event, Waiting)]
    assert any(each.startswith("`n1` unreachable since 1") and "no route to host" in each for each in reasons)


def test_a_node_that_stays_away_ends_the_rollout_with_all_that_is_on_it(roll_out, cluster, clock, sink, cut):
    cluster.cuts = {"n1": cut(begins=clock.now() + 0.05, ends=float("inf"))}
    with pytest.raises(DiagnosticError) as raised:
        roll_out(EVERYTHING)
    (fault,) = raised.value.diagnostics
    assert fault.code == "PD610"
    assert fault.message == "n1 was lost before the deployment was ready: no route to host"
    assert fault.notes[0] == ("`prefill-0.0,decode-0.0` may run there or not: unreachable is not stopped")
    assert "start router-0.0" not in cluster.calls


def test_a_start_whose_answer_was_lost_is_asked_for_again_when_the_node_answers(
    roll_out, cluster, clock, sink, cut
):
    cluster.cuts = {"n1": cut(begins=clock.now(), ends=clock.now() + 10)}
    roll_out(EVERYTHING)
    assert cluster.calls.count("start prefill-0.0") == 2
    assert sink.text()[-1] == "ready router-0.0"


def test_the_deadline_of_a_process_bounds_the_wait_for_its_node(roll_out, cluster, clock, cut):
    began = clock.now()
    cluster.cuts = {"n1": cut(begins=began, ends=float("inf"))}
    with pytest.raises(DiagnosticError, match="PD610: n1 was lost"):
        roll_out(EVERYTHING, deadline_s=20.0)
    assert 20 < clock.now() - began < 25


def test_what_is_out_of_scope_is_not_waited_for(roll_out, cluster, sink):
    roll_out(("decode-0.0",), scope={"decode-0.0"})
    assert sink.text() == ["starting decode-0.0", "started decode-0.0", "ready decode-0.0"]


def test_nothing_more_is_started_once_the_lock_is_lost(roll_out, cluster, clock, script):
    cluster.scripts = {"decode-0.0": script(ready_after_s=10.0)}

    def require_lock():
        if clock.now() > 1005:
            raise DiagnosticError.one("PD614", "somebody has taken the lock away")

    with pytest.raises(DiagnosticError, match="PD614"):
        roll_out(EVERYTHING, require_lock=require_lock)
    assert cluster.calls == ["start prefill-0.0", "start decode-0.0"]


def test_only_nodes_of_what_is_waited_for_are_asked_and_all_now_and_then(roll_out, spread, cluster, script):
    cluster.scripts = {"prefill-0.0": script(ready_after_s=0.0), "decode-0.0": script(ready_after_s=8.0)}
    roll_out(EVERYTHING, plan=spread)
    assert [nodes for nodes, _ in groupby(cluster.looked_at)] == [
        *(("n1", "n2"), ("n2",), ("n1", "n2"), ("n2",)),
        *(("n3",), ("n1", "n2", "n3")),
    ]


def test_what_ended_while_only_another_node_was_asked_does_not_count_as_up(roll_out, spread, cluster, script):
    cluster.scripts = {
        "prefill-0.0": script(ready_after_s=0.0, ends_after_s=1.5),
        "router-0.0": script(ready_after_s=1.0),
    }
    with pytest.raises(DiagnosticError, match=r"PD602: `prefill-0\.0` exited"):
        roll_out(EVERYTHING, plan=spread)
    assert cluster.looked_at[-2] == ("n1", "n2", "n3")
    assert cluster.looked_at[-1] == ("n1",)  # for its last lines


def test_what_runs_and_serves_costs_one_look(roll_out, spread, cluster):
    cluster.start(spread, spread.processes)
    cluster.clock.sleep(60)
    roll_out((), plan=spread)
    assert cluster.looked_at == [("n1", "n2", "n3")]
