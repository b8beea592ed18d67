"""What must be done, and why: plans and observations as values, changes as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdctl.compiler import compile_plan
from pdctl.reconcile.reconcile import narrowed, reconcile
from pdctl.state.observed import ObservedProcess, ObservedState, Phase, UnreachableNode


@pytest.fixture
def plan(make_topology, make_inventory, reference_programs):
    return compile_plan(make_topology(), make_inventory(1), reference_programs)


def running(plan) -> ObservedState:
    """Everything as the plan wants it."""
    return ObservedState(
        deployment=plan.name,
        processes=tuple(
            ObservedProcess(
                id=process.id,
                node=process.node,
                phase=Phase.STARTING,
                digest=process.digest,
                pid=100,
                argv=process.argv,
                env=process.env,
                num_alive=1,
            )
            for process in plan.processes
        ),
    )


def altered(state: ObservedState, process_id: str, **fields) -> ObservedState:
    return replace(
        state,
        processes=tuple(
            replace(each, **fields) if each.id == process_id else each for each in state.processes
        ),
    )


def with_follower(plan, instance_id: str):
    """The plan with a second process in one instance, as an engine over two nodes has it."""
    leader = plan.process(f"{instance_id}.0")
    follower = replace(leader, id=f"{instance_id}.1", node_rank=1, digest="f" * 64)
    at = plan.processes.index(leader) + 1
    return replace(
        plan,
        processes=(*plan.processes[:at], follower, *plan.processes[at:]),
        instances=tuple(
            replace(each, process_ids=(*each.process_ids, follower.id)) if each.id == instance_id else each
            for each in plan.instances
        ),
    )


def text(changes) -> list[str]:
    return [f"{change.op} {change.process_id}: {change.cause}" for change in changes.changes]


def test_everything_is_created_where_nothing_runs(plan):
    assert text(reconcile(plan, ObservedState(deployment="test"))) == [
        "create prefill-0.0: not running",
        "create decode-0.0: not running",
        "create router-0.0: not running",
    ]


def test_what_runs_as_planned_is_kept(plan):
    changes = reconcile(plan, running(plan))
    assert changes.is_empty
    assert text(changes) == [
        "keep prefill-0.0: runs as planned",
        "keep decode-0.0: runs as planned",
        "keep router-0.0: runs as planned",
    ]


def test_an_edit_replaces_just_what_it_changes_and_names_the_flag(
    plan, make_topology, make_inventory, reference_programs
):
    edited = make_topology(decode={"args": {"page-size": 32}, "env": {"A": "1"}})
    new = compile_plan(edited, make_inventory(1), reference_programs)
    assert text(reconcile(new, running(plan))) == [
        "keep prefill-0.0: runs as planned",
        "replace decode-0.0: `--page-size` unset -> 32, `A` unset -> 1",
        "keep router-0.0: runs as planned",
    ]


def test_a_new_decode_instance_restarts_the_router_that_must_list_it(
    plan, make_topology, make_inventory, reference_programs
):
    new = compile_plan(make_topology(decode={"instances": 2}), make_inventory(1), reference_programs)
    assert [line.partition(":")[0] for line in text(reconcile(new, running(plan)))] == [
        "keep prefill-0.0",
        "keep decode-0.0",
        "create decode-1.0",
        "replace router-0.0",
    ]


def test_a_process_that_left_the_topology_is_stopped_first(
    make_topology, make_inventory, reference_programs, plan
):
    large = compile_plan(make_topology(decode={"instances": 3}), make_inventory(1), reference_programs)
    lines = text(reconcile(plan, running(large)))
    assert lines[:2] == ["stop decode-2.0: not in the topology", "stop decode-1.0: not in the topology"]
    assert lines[-1].startswith("replace router-0.0: `--decode` ")


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"phase": Phase.FAILED, "exit_code": 3}, "create decode-0.0: exited with code 3"),
        ({"phase": Phase.FAILED, "signal": 9}, "create decode-0.0: ended by signal 9"),
        ({"phase": Phase.LOST}, "create decode-0.0: lost, with no record of its end"),
        ({"phase": Phase.LOST, "reason": "host rebooted"}, "create decode-0.0: host rebooted"),
    ],
)
def test_an_ended_process_is_created_again_with_its_end_as_the_cause(plan, end, expected):
    state = altered(running(plan), "decode-0.0", num_alive=0, **end)
    assert text(reconcile(plan, state))[1] == expected


def test_leftovers_of_an_ended_process_are_stopped_before_it_starts_again(plan):
    state = altered(running(plan), "decode-0.0", phase=Phase.FAILED, signal=9, num_alive=2)
    assert text(reconcile(plan, state))[1] == "replace decode-0.0: ended by signal 9"


def test_an_instance_restarts_as_a_whole(plan):
    plan = with_follower(plan, "decode-0")
    state = altered(running(plan), "decode-0.1", phase=Phase.FAILED, exit_code=1, num_alive=0)
    assert text(reconcile(plan, state)) == [
        "keep prefill-0.0: runs as planned",
        "replace decode-0.0: `decode-0` restarts as a whole: `decode-0.1` is not running",
        "create decode-0.1: exited with code 1",
        "keep router-0.0: runs as planned",
    ]


def test_a_restart_replaces_the_instance_that_was_named_alone(plan):
    assert text(reconcile(plan, running(plan), restart={"decode-0"}))[1:] == [
        "replace decode-0.0: restart was asked for",
        "keep router-0.0: runs as planned",
    ]


def test_what_runs_on_an_unreachable_node_is_left_alone(plan):
    state = ObservedState(deployment="test", unreachable=(UnreachableNode(name="n1", reason="timed out"),))
    changes = reconcile(plan, state)
    assert changes.is_empty
    assert changes.changes[0].cause == "`n1` is unreachable, so what runs there is unknown"


def test_a_run_whose_directory_is_gone_is_replaced(plan):
    state = altered(running(plan), "decode-0.0", digest=None, argv=(), env={})
    change = reconcile(plan, state).changes[1]
    assert change.op == "replace"


def restarted(plan, observed, *instance_ids: str):
    changes, scope = narrowed(
        reconcile(plan, observed, restart=instance_ids), plan, observed, instance_ids=instance_ids
    )
    return text(changes), sorted(scope)


def test_a_restart_starts_nothing_that_nobody_asked_for(plan):
    assert restarted(plan, ObservedState(deployment="test"), "decode-0") == (
        ["create decode-0.0: not running"],
        ["decode-0.0"],
    )


def test_a_restart_starts_what_is_needed_and_does_not_run(plan):
    observed = altered(running(plan), "decode-0.0", phase=Phase.FAILED, num_alive=0, exit_code=1)
    assert restarted(plan, observed, "router-0") == (
        [
            "create decode-0.0: exited with code 1; `router-0.0` needs it",
            "replace router-0.0: restart was asked for",
        ],
        ["decode-0.0", "prefill-0.0", "router-0.0"],
    )


def test_a_router_that_runs_is_waited_for_as_well_since_it_has_to_find_its_worker_again(plan):
    assert restarted(plan, running(plan), "decode-0") == (
        ["replace decode-0.0: restart was asked for"],
        ["decode-0.0", "router-0.0"],
    )


def test_a_router_that_also_lacks_what_nobody_asked_for_is_not_waited_for(plan):
    observed = altered(running(plan), "prefill-0.0", phase=Phase.FAILED, num_alive=0, exit_code=1)
    assert restarted(plan, observed, "decode-0")[1] == ["decode-0.0"]


def test_what_a_restart_needs_is_left_alone_where_it_runs(plan):
    observed = altered(running(plan), "decode-0.0", digest="another")
    assert restarted(plan, observed, "router-0")[0] == ["replace router-0.0: restart was asked for"]


def test_a_needed_instance_starts_as_a_whole(plan):
    wider = with_follower(plan, "decode-0")
    observed = altered(running(wider), "decode-0.1", phase=Phase.LOST, num_alive=0, reason="rebooted")
    assert [each.partition(":")[0] for each in restarted(wider, observed, "router-0")[0]] == [
        "replace decode-0.0",
        "create decode-0.1",
        "replace router-0.0",
    ]
