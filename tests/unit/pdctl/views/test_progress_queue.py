"""A job in the queue of a cluster, on a pipe, as JSON lines and on a live board."""

from __future__ import annotations

import io
from collections.abc import Callable

from pdctl.events import Allocated, Event, Queued, Ready, Submitted
from pdctl.views.board import Board, after, board_lines
from pdctl.views.canvas import Canvas
from pdctl.views.progress_json import JsonProgress
from pdctl.views.progress_plain import PlainProgress

Golden = Callable[[str, str], None]


def queued(elapsed_s: float, *, reason: str = "Priority", starts_in_s: float | None = None) -> Queued:
    return Queued(job_id=4711, reason=reason, elapsed_s=elapsed_s, starts_in_s=starts_in_s)


WAITING = (Submitted(job_id=4711), queued(2.0), queued(31.0, reason="Resources", starts_in_s=300.0))
OPERATION: tuple[Event, ...] = (
    *WAITING,
    Allocated(job_id=4711, nodes=("gpu-001", "gpu-002", "gpu-004")),
    Ready(process_id="router-0.0", elapsed_s=12.0),
)


def said(*events: Event) -> list[str]:
    out = io.StringIO()
    with PlainProgress(out) as sink:
        for event in events:
            sink.on(event)
    return out.getvalue().splitlines()


def drawn(*events: Event) -> str:
    board = Board()
    for event in events:
        board = after(board, event)
    return "\n".join(board_lines(board, Canvas(width=80), max_lines=10)) + "\n"


def test_the_plain_screen_of_a_job_that_waits(golden: Golden) -> None:
    golden("screens/up-queue-pipe.txt", "\n".join(said(*OPERATION)) + "\n")


def test_nodes_that_a_job_does_without_are_told() -> None:
    submitted = Submitted(job_id=4711, without=("gpu07", "gpu08"))
    words = "4711, without gpu[07-08], see `pdctl nodes list`"
    assert said(submitted) == [f"submitted job {words}"]
    assert words in drawn(submitted)


def test_the_live_screen_of_a_job_that_waits_and_of_one_that_runs(golden: Golden) -> None:
    golden("screens/up-queue-80.txt", drawn(*WAITING) + "\n" + drawn(*OPERATION))


def test_the_json_of_a_job_that_waits(golden: Golden) -> None:
    out = io.StringIO()
    with JsonProgress(out) as sink:
        for event in OPERATION:
            sink.on(event)
    golden("screens/up-queue.jsonl", out.getvalue())


def test_a_long_wait_is_told_once_a_minute_and_when_its_reason_changes() -> None:
    ticks = [queued(float(second)) for second in range(0, 150, 2)]
    lines = said(*ticks, queued(151.0, reason="Resources"), queued(153.0, reason="Resources"))
    assert [line.partition(" nodes, ")[2] for line in lines] == [
        "0.0s: Priority",
        "1m: Priority",
        "2m: Priority",
        "2m 31s: Resources",
    ]
