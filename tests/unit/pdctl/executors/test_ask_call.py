"""Asking one machine for all nodes that it stands for."""

from __future__ import annotations

from pdctl.executors.ask_call import ask_node
from pdctl.executors.calls import NodeQuestion
from pdctl.executors.link import NodeLink

QUESTIONS = [NodeQuestion(node="n1", content={"a": 1}), NodeQuestion(node="n2", content={"a": 2})]


def test_all_nodes_of_a_machine_are_asked_in_one_call_and_each_has_its_answer(make_shell):
    shell = make_shell(answers=[[{"found": 1}, {"found": 2}]])
    replies = ask_node(NodeLink(name=None, shell=shell, python="python3", root="/r"), "survey", QUESTIONS)
    ((argv, request),) = shell.calls
    assert argv[-2:] == ["survey", "/r"]
    assert request == {"nodes": [{"a": 1}, {"a": 2}]}
    assert [(each.node, each.content.integer("found")) for each in replies] == [("n1", 1), ("n2", 2)]
    assert all(each.asked_at <= each.replied_at and not each.faults for each in replies)


def test_a_machine_without_python_is_a_reply_with_faults(make_shell):
    from pdctl.executors.shell import Completed

    shell = make_shell(answers=[Completed(code=127, stdout=b"", stderr=b"not found")])
    replies = ask_node(NodeLink(name="n1", shell=shell, python="python3", root="/r"), "survey", QUESTIONS)
    assert [(each.content, each.faults[0].code) for each in replies] == [(None, "PD501")] * 2
