"""Screens about nodes that can't be reached, locks and history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from pdctl.executors.calls import LogNotice
from pdctl.lifecycle.down import DownOutcome
from pdctl.lifecycle.history import Act
from pdctl.lifecycle.lock import LockState
from pdctl.state.audit import AuditEntry
from pdctl.state.lock import Owner
from pdctl.state.observed import Phase
from pdctl.state.pending import PendingNode
from pdctl.status import DeploymentStatus
from pdctl.views.canvas import Canvas
from pdctl.views.history import history_lines
from pdctl.views.lock import broken_lines, lock_lines
from pdctl.views.logs import notice_line
from pdctl.views.machine import to_json
from pdctl.views.outcome import down_lines
from pdctl.views.status import status_lines

Golden = Callable[[str, str], None]
AT = 1_700_000_000.0

ACTS = (
    Act(
        deployment="demo",
        entry=AuditEntry(
            at=AT,
            who="ada@desk",
            verb="up",
            outcome="done",
            changes=("create prefill-[0-3].0,decode-[0-7].0,router-0.0",),
        ),
    ),
    Act(
        deployment="demo",
        entry=AuditEntry(
            at=AT + 60,
            who="bob@login1",
            verb="down",
            outcome="unfinished",
            changes=("stop prefill-[0-3].0,decode-[0-7].0,router-0.0",),
            detail="not reached: n12",
        ),
    ),
)
HOLDER = Owner(
    token="t",
    who="ada@desk",
    verb="up",
    since=AT,
    host="desk",
    boot_id="b",
    pid_namespace=1,
    pid=4711,
    start_ticks=1,
)
LOCKED = LockState(name="demo", holder=HOLDER, is_dead=False, seen_at=AT + 123)


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def test_the_screen_of_history(golden: Golden) -> None:
    golden("screens/history.txt", "\n".join(history_lines(ACTS, Canvas(width=80))) + "\n")
    golden("screens/history.json", to_json({"acts": ACTS}) + "\n")
    assert list(history_lines((), Canvas())) == ["no act is on record"]


def test_the_screen_of_a_lock(golden: Golden) -> None:
    states = (LOCKED, replace(LOCKED, is_dead=True), replace(LOCKED, holder=None))
    lines = [line for state in states for line in (*lock_lines(state, Canvas()), "")]
    lines += [*broken_lines(LOCKED, is_broken=True), *broken_lines(LOCKED, is_broken=False)]
    golden("screens/lock.txt", "\n".join(lines) + "\n")
    golden("screens/lock.json", to_json(LOCKED) + "\n")


def test_the_screen_of_a_down_that_misses_nodes(golden: Golden) -> None:
    outcome = DownOutcome(
        stopped=("prefill-0.0", "router-0.0"),
        leftovers=("decode-0.0 still lives",),
        pending=tuple(PendingNode(name=f"n{each}", reason="no route to host", since=AT) for each in (7, 8)),
        unproven=("device memory on n[1-6]: it has NVIDIA devices, but no `nvidia-smi`",),
        elapsed_s=2.4,
    )
    golden("screens/down-unfinished.txt", "\n".join(down_lines("demo", outcome, Canvas(width=80))) + "\n")


def test_the_screen_of_status_with_nodes_that_cannot_be_reached(
    golden: Golden, ready_status: DeploymentStatus
) -> None:
    (known, *_) = ready_status.processes
    unknown = tuple(
        replace(
            known,
            id=f"decode-{each}.0",
            node=f"n{each}",
            phase=Phase.UNKNOWN,
            pid=None,
            uptime_s=None,
            rss_bytes=None,
            num_requests=None,
            reason="its node can't be reached: no route to host",
        )
        for each in (7, 8)
    )
    status = replace(
        ready_status,
        phase=Phase.UNKNOWN,
        processes=(*ready_status.processes, *unknown),
        problems=("n[7-8] can't be reached: no route to host",),
    )
    golden("screens/status-unreachable.txt", "\n".join(status_lines(status, Canvas(width=100))) + "\n")


def test_what_happens_to_a_log_stream_is_told_apart() -> None:
    notice = LogNotice(node="n7", text="can't be reached: no route to host")
    assert notice_line(notice, Canvas()) == "logs: n7 can't be reached: no route to host"
