"""Nodes that are lost and come back while an act goes on."""

from __future__ import annotations

import threading

import pytest

from pdctl.executors.link import NodeLink
from pdctl.executors.lost import LostNodes
from pdctl.executors.shell import Completed, UnreachableError


class Cable:
    """A shell that answers only while it is plugged in."""

    def __init__(self) -> None:
        self.is_plugged_in = False
        self.was_asked = threading.Event()
        self.num_asked = 0

    def run(self, argv, *, stdin=b"", timeout_s):
        self.num_asked += 1
        self.was_asked.set()
        if not self.is_plugged_in:
            raise UnreachableError(f"no route to host, try {self.num_asked}")
        return Completed(code=0, stdout=b"[]", stderr=b"")


@pytest.fixture
def cable() -> Cable:
    return Cable()


@pytest.fixture
def link(cable) -> NodeLink:
    return NodeLink(name="n1", shell=cable, python="py", root="/runs")


def test_a_node_is_lost_until_it_answers_again(cable, link):
    lost = LostNodes(ask_every_s=0.01)
    assert lost.since_s(link) == 0.0
    lost.note(link, UnreachableError("no route to host"))
    with pytest.raises(UnreachableError, match="no route to host"):
        lost.require_reachable(link)
    assert cable.was_asked.wait(10)
    assert lost.since_s(link) > 0.0
    cable.is_plugged_in = True
    while lost.since_s(link):
        threading.Event().wait(0.01)
    lost.require_reachable(link)


def test_why_it_is_lost_is_the_latest_reason(cable, link):
    lost = LostNodes(ask_every_s=0.01)
    lost.note(link, UnreachableError("connection reset"))
    while "try 2" not in _reason(lost, link):
        threading.Event().wait(0.01)
    cable.is_plugged_in = True


def _reason(lost: LostNodes, link: NodeLink) -> str:
    try:
        lost.require_reachable(link)
    except UnreachableError as error:
        return str(error)
    return ""


def test_one_loss_is_noted_once(cable, link):
    lost = LostNodes(ask_every_s=3600.0)
    lost.note(link, UnreachableError("first"))
    lost.note(link, UnreachableError("second"))
    assert _reason(lost, link) == "first"
