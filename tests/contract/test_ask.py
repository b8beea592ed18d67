"""Questions to nodes, on every executor: one answer each, in order, with faults where there is none."""

from __future__ import annotations

import time

from pdctl.executors.calls import NodeQuestion


def test_each_node_answers_for_itself_and_in_order(bench):
    questions = [NodeQuestion(node=node, content={"node": node, "folders": ["/"]}) for node in bench.nodes]
    before = time.time()
    replies = bench.executor.ask("survey", questions)
    assert [reply.node for reply in replies] == list(bench.nodes)
    for reply in replies:
        assert reply.faults == ()
        assert before <= reply.asked_at <= reply.replied_at <= time.time()
        assert [folder.text("path") for folder in reply.content.objects("folders")][1:] == ["/"]


def test_a_verb_that_the_shim_refuses_is_a_fault_of_the_node(bench):
    (reply,) = bench.executor.ask("survey", [NodeQuestion(node=bench.nodes[0], content={"folders": "/"})])
    assert reply.content is None
    assert reply.faults[0].code == "PD502"
