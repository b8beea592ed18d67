from __future__ import annotations

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.calls import LogQuery, NodeCommand, PortQuery, ProbeRequest
from pdctl.executors.link import NodeLink
from pdctl.executors.shimmed import ShimmedExecutor
from pdctl.inventory import declared
from pdctl.state.lock import Acquired, this_owner
from pdctl.state.observed import ObservedProcess, Phase, UnreachableNode


@pytest.fixture
def make_executor(make_shell):
    """An executor over nodes n1, n2, …; each argument is what that node's shell answers in turn."""

    def make(*answers: list[object]):
        shells = [make_shell(answers=list(each)) for each in answers]
        links = {
            f"n{number}": NodeLink(name=f"n{number}", shell=shell, python="py", root="/runs")
            for number, shell in enumerate(shells, 1)
        }
        executor = ShimmedExecutor(links=tuple(links.values()), link_of=links.get, find_nodes=declared)
        return executor, shells

    return make


def _entry(process_id: str, node: str | None = None) -> dict[str, object]:
    entry = {"process_id": process_id, "node": node, "state": "running", "is_stopped": False}
    return {**entry, "num_alive": 1, "argv": [], "env": {}}


def _stopped(process_id: str) -> dict[str, object]:
    outcome = {"process_id": process_id, "was_alive": True, "killed": False}
    return {**outcome, "elapsed_s": 0.1, "survivors": [{"pid": 9, "command": "nfs", "state": "D"}]}


def _observed(process_id: str, node: str, grace_s: float = 5.0) -> ObservedProcess:
    return ObservedProcess(id=process_id, node=node, phase=Phase.STARTING, grace_s=grace_s)


def test_every_node_is_asked_for_its_own_and_an_unreachable_one_is_told(make_executor, lost):
    executor, shells = make_executor([[_entry("b-0.0", "n1")]], [lost], [[_entry("a-0.0", None)]])
    observed = executor.observe("demo")
    assert [(process.id, process.node) for process in observed.processes] == [
        ("a-0.0", "n3"),
        ("b-0.0", "n1"),
    ]
    assert observed.unreachable == (UnreachableNode(name="n2", reason="no answer within 30 s"),)
    assert [shell.calls[0][1] for shell in shells] == [{"node": "n1"}, {"node": "n2"}, {"node": "n3"}]


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
    with pytest.raises(DiagnosticError, match="PD503: n1 can't be reached"):
        executor.ports([PortQuery(node="n1", host="h", port=1)])


def test_forget_needs_every_node_but_clears_those_it_reaches(make_executor, lost):
    executor, shells = make_executor([lost], [{"kept": []}])
    with pytest.raises(DiagnosticError, match="PD503: n1"):
        executor.forget("demo")
    assert shells[1].calls[0][0][4] == "forget"


def test_deployments_of_all_nodes_that_answer(make_executor, lost):
    executor, _ = make_executor([["b", "a"]], [lost], [["c", "a"]])
    assert executor.deployments() == ("a", "b", "c")


def test_the_lock_lies_on_the_first_node_that_answers(make_executor, lost):
    executor, shells = make_executor([lost], [{"acquired": True, "replaced": None}], [])
    owner = this_owner("up")
    assert executor.lock("demo", owner) == Acquired()
    assert shells[1].calls[0][1] == {"owner": owner.to_json(), "replace": None}
    assert shells[2].calls == []


def test_the_lock_is_given_back_where_it_was_taken(make_executor, lost):
    """The first node was unreachable for a moment only."""
    executor, shells = make_executor([lost], [{"acquired": True, "replaced": None}, {"released": True}])
    owner = this_owner("up")
    executor.lock("demo", owner)
    executor.unlock("demo", owner)
    assert shells[1].calls[1][1] == {"token": owner.token}
    assert len(shells[0].calls) == 1


def test_no_lock_where_no_node_answers(make_executor, lost):
    executor, _ = make_executor([lost], [lost])
    with pytest.raises(DiagnosticError, match="PD503: the cluster can't be reached"):
        executor.lock("demo", this_owner("up"))


def test_a_lock_that_cannot_be_written_or_read_is_told(make_executor):
    executor, _ = make_executor(
        [{"acquired": False, "error": "cannot write the lock: No space left on device"}]
    )
    with pytest.raises(DiagnosticError, match="PD505: n1: cannot write the lock: No space left"):
        executor.lock("demo", this_owner("up"))
    executor, _ = make_executor([{"holder": {"token": "t", "version": 9}}])
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
    assert shells[1].calls[1][1] == {"tail": 3, "follow": False}


def test_nothing_to_ask_is_no_call(make_executor):
    executor, shells = make_executor([])
    assert (executor.probe([]), executor.ports([]), executor.stop("demo", [])) == ((), (), ())
    assert shells[0].calls == []
