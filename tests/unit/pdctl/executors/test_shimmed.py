from __future__ import annotations

from dataclasses import replace

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.archive import shim_archive
from pdctl.executors.calls import LogQuery, LookQuery, NodeCommand, PortQuery, ProbeRequest
from pdctl.executors.link import NodeLink
from pdctl.executors.lost import LostNodes
from pdctl.executors.shell import Completed
from pdctl.executors.shimmed import ShimmedExecutor
from pdctl.inventory import declared
from pdctl.plan.model import LaunchPlan, ProcessSpec, RoleKind
from pdctl.state.lock import Acquired, Held, this_owner
from pdctl.state.observed import ObservedProcess, Phase

SHIM = f"/runs/{shim_archive().name}"


@pytest.fixture
def make_executor(make_shell):
    """An executor over nodes n1, n2, …; each argument is what that node's shell answers in turn."""

    def make(*answers: list[object]):
        shells = [make_shell(answers=list(each)) for each in answers]
        links = {
            f"n{number}": NodeLink(name=f"n{number}", shell=shell, python="py", root="/runs")
            for number, shell in enumerate(shells, 1)
        }
        executor = ShimmedExecutor(
            links=tuple(links.values()),
            link_of=links.get,
            find_nodes=declared,
            lost=LostNodes(ask_every_s=3600.0),
        )
        return executor, shells

    return make


def _one(answer: object) -> list[object]:
    """What `do` answers for a single call."""
    return [{"answer": answer}]


@pytest.fixture
def plan_of():
    """A plan of processes, each given as its id and node."""

    def make(*processes: tuple[str, str]) -> LaunchPlan:
        specs = tuple(
            ProcessSpec(
                id=process_id,
                instance_id=process_id.partition(".")[0],
                role=RoleKind.DECODE,
                node=node,
                node_rank=0,
                device_indices=(),
                argv=("sleep", "1"),
                env={},
                listen="127.0.0.1",
                ports=(),
                after=(),
                ready=None,
                grace_s=1.0,
            )
            for process_id, node in processes
        )
        return LaunchPlan(
            name="demo",
            executor="ssh",
            topology_digest="t",
            nodes=(),
            instances=(),
            processes=specs,
            served_model="m",
            canary=False,
            digest="d",
        )

    return make


def _entry(process_id: str, node: str | None = None) -> dict[str, object]:
    entry = {"process_id": process_id, "node": node, "state": "running", "is_stopped": False}
    return {**entry, "num_alive": 1, "argv": [], "env": {}}


def _stopped(process_id: str) -> dict[str, object]:
    outcome = {"process_id": process_id, "was_alive": True, "killed": False, "pids": [9]}
    return {**outcome, "elapsed_s": 0.1, "survivors": [{"pid": 9, "command": "nfs", "state": "D"}]}


def _observed(process_id: str, node: str, grace_s: float = 5.0) -> ObservedProcess:
    return ObservedProcess(id=process_id, node=node, phase=Phase.STARTING, grace_s=grace_s)


def test_every_node_is_asked_for_its_own_and_an_unreachable_one_is_told(make_executor, lost):
    executor, shells = make_executor([_one([_entry("b-0.0", "n1")])], [lost], [_one([_entry("a-0.0", None)])])
    observed = executor.observe("demo")
    assert [(process.id, process.node) for process in observed.processes] == [
        ("a-0.0", "n3"),
        ("b-0.0", "n1"),
    ]
    (unreachable,) = observed.unreachable
    assert (unreachable.name, unreachable.reason) == ("n2", "no answer within 30 s")
    asked = [shell.calls[0][1]["calls"] for shell in shells]
    assert [call["request"] for calls in asked for call in calls] == [
        {"node": f"n{each}"} for each in (1, 2, 3)
    ]


def test_a_node_without_python_does_not_hide_the_others(make_executor):
    no_python = Completed(code=127, stdout=b"", stderr=b"sh: py: not found")
    executor, _ = make_executor([no_python], [_one([_entry("a-0.0", "n2")])])
    observed = executor.observe("demo")
    assert [process.id for process in observed.processes] == ["a-0.0"]
    assert observed.unreachable[0].reason == "n1 has no Python at `py`"
    assert observed.unreachable[0].fault.help.startswith("install Python there")


def test_a_look_is_one_round_trip_per_node_whatever_it_wants_to_see(make_executor, lost):
    ok = {"status": 200, "body": "ok", "error": None, "elapsed_s": 0.1}
    seen = [{"answer": [_entry("a-0.0", "n1")]}, {"answer": [ok]}, {"answer": {"a-0.0": ["x", "y"]}}]
    executor, shells = make_executor([seen], [lost])
    sight = executor.look(
        LookQuery(
            deployment="demo",
            probes=tuple(ProbeRequest(node=node, url="http://h/") for node in ("n2", "n1")),
            tail_of={"a-0.0": "n1", "b-0.0": "n2"},
            num_lines=2,
        )
    )
    assert [process.id for process in sight.state.processes] == ["a-0.0"]
    assert [answer.status for answer in sight.answers] == [None, 200]
    assert sight.answers[0].error == "n2 can't be reached: no answer within 30 s"
    assert sight.tails == {"a-0.0": ("x", "y"), "b-0.0": ()}
    assert len(shells[0].calls) == 1


def test_a_look_at_some_nodes_asks_no_others(make_executor):
    executor, shells = make_executor([], [_one([_entry("prefill-0.0", "n2")])], [])
    sight = executor.look(LookQuery(deployment="demo", nodes=("n2",)))
    assert [process.id for process in sight.state.processes] == ["prefill-0.0"]
    assert [len(shell.calls) for shell in shells] == [0, 1, 0]


def test_all_processes_of_a_node_start_in_one_call(make_executor, plan_of):
    started = {"started": True, "run_id": "000001", "pid": 7, "error": None}
    executor, shells = make_executor([[{"answer": started}] * 2], [[{"answer": started}]])
    plan = plan_of(("a-0.0", "n1"), ("b-0.0", "n2"), ("c-0.0", "n1"))
    outcomes = executor.start(plan, plan.processes)
    assert [(outcome.process_id, outcome.pid) for outcome in outcomes] == [
        ("a-0.0", 7),
        ("b-0.0", 7),
        ("c-0.0", 7),
    ]
    (argv, request) = shells[0].calls[0]
    assert argv[4:] == ["do"]
    assert [call["names"] for call in request["calls"]] == [
        ["/runs", "demo", "a-0.0"],
        ["/runs", "demo", "c-0.0"],
    ]
    assert len({call["request"]["start_id"] for call in request["calls"]}) == 2


def test_a_node_that_was_lost_costs_the_next_question_no_time_out(make_executor, lost):
    executor, shells = make_executor([_one([]), _one([])], [lost])
    executor.observe("demo")
    (unreachable,) = executor.observe("demo").unreachable
    assert unreachable.reason == "no answer within 30 s"
    assert len(shells[1].calls) == 1


def test_a_stop_is_one_call_per_node_and_an_unreachable_node_stops_nothing(make_executor, lost):
    executor, shells = make_executor([[_stopped("a-0.0"), _stopped("c-0.0")]], [lost])
    asked = [_observed("a-0.0", "n1"), _observed("b-0.0", "n2"), _observed("c-0.0", "n1")]
    outcomes = executor.stop("demo", asked, grace_s=1.0)
    assert [outcome.process_id for outcome in outcomes] == ["a-0.0", "b-0.0", "c-0.0"]
    assert [outcome.error for outcome in outcomes] == [
        None,
        "n2 can't be reached: no answer within 30 s",
        None,
    ]
    assert outcomes[0].survivors[0].state == "D"
    (argv, request) = shells[0].calls[0]
    assert (argv[4:], request) == (
        ["stop", "/runs", "demo", "a-0.0", "c-0.0"],
        {"grace_s": {"a-0.0": 1.0, "c-0.0": 1.0}},
    )


def test_probes_to_an_unreachable_node_are_answers_too(make_executor, lost):
    ok = {"status": 200, "body": "ok", "error": None, "elapsed_s": 0.1}
    executor, _ = make_executor([lost], [[ok]])
    requests = [ProbeRequest(node=node, url="http://h/") for node in ("n1", "n2")]
    answers = executor.probe(requests)
    assert [answer.status for answer in answers] == [None, 200]
    assert answers[0].error == "n1 can't be reached: no answer within 30 s"


def test_free_ports_of_an_unreachable_node_cannot_be_promised(make_executor, lost):
    executor, _ = make_executor([lost])
    (answer,) = executor.ports([PortQuery(node="n1", host="h", port=1)])
    assert (answer.is_unreachable, answer.problem) == (True, "no answer within 30 s")


def test_forget_clears_the_nodes_it_reaches_and_tells_the_others(make_executor, lost):
    executor, shells = make_executor([lost], [{"kept": ["a-0.0"]}])
    outcome = executor.forget("demo", keeps_plan=True)
    assert (outcome.kept, [node.name for node in outcome.unreachable]) == (("a-0.0",), ["n1"])
    assert shells[1].calls[0] == (
        ["py", "-I", "-S", SHIM, "forget", "/runs", "demo"],
        {"node": "n2", "keeps_plan": True},
    )


def test_of_kept_plans_the_newest_wins(make_executor, lost):
    def kept(generation: int, content: str | None) -> dict[str, object]:
        return {"generation": generation, "pending": [], "content": content}

    executor, shells = make_executor([kept(3, "old")], [kept(4, "new")], [lost], [])
    assert executor.kept_plan("demo") == b"new"
    assert shells[3].calls == []
    executor, _ = make_executor([kept(0, None)], [kept(0, None)])
    assert executor.kept_plan("demo") is None


def test_the_plan_is_kept_on_three_nodes_and_counts_on_from_the_newest(make_executor):
    old = {"generation": 4, "pending": [], "content": "old"}
    none = {"generation": 0, "pending": [], "content": None}
    executor, shells = make_executor([none, {}], [old, {}], [none, {}], [])
    executor.keep_plan("demo", b"new")
    requests = [shell.calls[1][1] for shell in shells[:3]]
    assert requests == [{"content": "new", "generation": 5, "pending": []}] * 3
    assert shells[3].calls == []


def test_deployments_of_all_nodes_that_answer(make_executor, lost):
    executor, _ = make_executor([["b", "a"]], [lost], [["c", "a"]])
    assert executor.deployments() == ("a", "b", "c")


FREE = {"holder": None, "pending": []}
TAKEN = {"acquired": True, "replaced": None}


def test_the_lock_lies_on_the_first_node(make_executor, lost):
    executor, shells = make_executor([TAKEN], [FREE], [FREE], [])
    owner = this_owner("up")
    assert executor.lock("demo", owner) == Acquired()
    assert shells[0].calls[0][1] == {"owner": owner.to_json(), "replace": None}
    assert [shell.calls[0][0][4] for shell in shells[1:3]] == ["holder", "holder"]
    assert shells[3].calls == []
    executor, _ = make_executor([lost], [TAKEN])
    with pytest.raises(DiagnosticError, match="PD503: n1 can't be reached"):
        executor.lock("demo", owner)


def test_to_end_a_deployment_the_next_node_that_answers_will_do(make_executor, lost):
    executor, shells = make_executor([lost], [TAKEN, {"released": True}], [FREE])
    owner = this_owner("down")
    assert executor.lock("demo", owner, anywhere=True) == Acquired(instead_of=("n1",))
    executor.unlock("demo", owner)
    assert shells[1].calls[1][1] == {"token": owner.token}
    assert len(shells[0].calls) == 1


def test_a_lock_that_moved_while_the_first_node_was_lost_still_counts(make_executor):
    """The first node answers again, but somebody is at work under the lock of the second."""
    owner, other = this_owner("up"), replace(this_owner("down"), host="elsewhere")
    held = {"holder": other.to_json(), "pending": []}
    executor, shells = make_executor([TAKEN, {"released": True}], [held])
    assert executor.lock("demo", owner) == Held(holder=other)
    assert shells[0].calls[1][0][4] == "unlock"


def test_a_lock_that_other_nodes_show_because_they_share_a_file_system_is_the_owners_own(make_executor):
    owner = this_owner("up")
    shown = {"holder": owner.to_json(), "pending": []}
    executor, _ = make_executor([TAKEN], [shown], [shown])
    assert executor.lock("demo", owner) == Acquired(dead_owner=None)


def test_no_lock_where_no_node_answers(make_executor, lost):
    executor, _ = make_executor([lost], [lost])
    with pytest.raises(DiagnosticError, match="PD503: n1, n2 can't be reached"):
        executor.lock("demo", this_owner("down"), anywhere=True)


def test_a_lock_that_cannot_be_written_or_read_is_told(make_executor):
    executor, _ = make_executor(
        [{"acquired": False, "error": "cannot write the lock: No space left on device"}]
    )
    with pytest.raises(DiagnosticError, match="PD505: n1: cannot write the lock: No space left"):
        executor.lock("demo", this_owner("up"))
    executor, _ = make_executor([{"holder": {"token": "t", "version": 9}, "pending": []}])
    with pytest.raises(DiagnosticError, match="PD505: the lock of `demo` can't be read"):
        executor.holder("demo")


def test_a_node_that_the_cluster_lacks_is_named(make_executor):
    executor, _ = make_executor([])
    with pytest.raises(DiagnosticError, match="PD504: the cluster has no node `n9`"):
        executor.run(NodeCommand(node="n9", argv=("true",)))


def test_logs_of_one_node_are_one_stream(make_executor):
    executor, shells = make_executor([[]], [[]])
    shells[0].lines = [{"process_id": "a-0.0", "run_id": "000001", "line": "x"}]
    query = LogQuery(deployment="demo", node_of={"a-0.0": "n1", "b-0.0": "n2", "c-0.0": "n1"}, tail=3)
    assert [line.text for line in executor.logs(query)] == ["x"]
    assert shells[0].calls[1][0][4:] == ["logs", "/runs", "demo", "a-0.0", "c-0.0"]
    assert shells[1].calls[1][1] == {"tail": 3, "follow": False, "marks": {}}


def test_nothing_to_ask_is_no_call(make_executor):
    executor, shells = make_executor([])
    assert (executor.probe([]), executor.ports([]), executor.stop("demo", [])) == ((), (), ())
    assert shells[0].calls == []
