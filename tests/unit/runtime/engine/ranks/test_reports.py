"""Reports of several ranks become one; the links that carry them are real."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from runtime.engine.ranks.commands import Invitation
from runtime.engine.ranks.reports import LeaderLinks, Reports, WorkerLink


def test_the_end_comes_with_the_last_report_and_the_first_reason():
    reports, ends = Reports(), []
    report_id = reports.expect(3, ends.append)
    reports.take(report_id, 10, None)
    reports.take(report_id, 0, "gone")
    assert ends == []
    reports.take(report_id, 5, "later")
    assert ends == ["gone"]
    assert reports.num_bytes == 15


def test_late_reports_and_unknown_ones_change_nothing():
    reports, ends = Reports(), []
    report_id = reports.expect(1, ends.append)
    reports.take(report_id + 1, 7, None)
    reports.take(report_id, 1, None)
    reports.take(report_id, 1, None)
    assert (ends, reports.num_bytes) == ([None], 1)


class Linked:
    """A leader's links, and what it hears."""

    def __init__(self) -> None:
        self.reports = Reports()
        self.lost: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.links = LeaderLinks("127.0.0.1", self.reports, on_lost=self.lost.put)
        self.invitation = self.links.invitation("127.0.0.1")
        self.workers: list[WorkerLink] = []

    def dial(self, tp_rank: int, invitation: Invitation | None = None) -> WorkerLink:
        worker = WorkerLink(tp_rank, on_lost=lambda reason: None)
        self.workers.append(worker)
        worker.dial(invitation or self.invitation)
        return worker


@pytest.fixture
def linked() -> Iterator[Linked]:
    leader = Linked()
    yield leader
    leader.links.expect_ends()
    for worker in leader.workers:
        worker.close()
    leader.links.close()


def test_a_ranks_report_reaches_the_leader(linked):
    ends: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    worker = linked.dial(1)
    assert linked.links.wait_for(1)
    worker.report(linked.reports.expect(1, ends.put), 42, "why")
    assert ends.get(timeout=5) == "why"
    assert linked.reports.num_bytes == 42


def test_a_rank_that_goes_is_named(linked):
    worker = linked.dial(3)
    assert linked.links.wait_for(1)
    worker.close()
    assert linked.lost.get(timeout=5).startswith("lost rank 3: ")


def test_a_rank_that_goes_as_it_was_told_is_not_missed(linked):
    worker = linked.dial(3)
    assert linked.links.wait_for(1)
    linked.links.expect_ends()
    worker.close()
    linked.links.close()
    assert linked.lost.empty()


def test_a_stranger_is_no_rank(linked):
    invitation = linked.invitation
    stranger = Invitation(host=invitation.host, port=invitation.port, token=invitation.token ^ 1)
    ends: queue.SimpleQueue[str] = queue.SimpleQueue()
    worker = WorkerLink(1, on_lost=ends.put)
    linked.workers.append(worker)
    worker.dial(stranger)
    assert "lost the leader" in ends.get(timeout=5)
    assert linked.lost.empty()


def test_a_leader_that_ends_lets_its_ranks_hang_up_first(linked):
    """Whatever reaches a rank first, the word to stop or the cut link: neither is a fault to it."""
    faults: list[str] = []
    worker = WorkerLink(1, on_lost=faults.append)
    worker.dial(linked.invitation)
    assert linked.links.wait_for(1)
    closing = threading.Thread(target=linked.links.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    worker.close()
    closing.join(10)
    assert not closing.is_alive()
    assert not faults
