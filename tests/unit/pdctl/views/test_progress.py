"""The same operation on a pipe, as JSON lines and on a live board."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable

import pytest

from pdctl.events import (
    Event,
    Failed,
    LockTaken,
    Preparing,
    Ready,
    Started,
    Starting,
    Stopped,
    Stopping,
    Verified,
    Verifying,
    Waiting,
)
from pdctl.views.board import Board, after, board_lines
from pdctl.views.canvas import Canvas
from pdctl.views.progress_json import JsonProgress
from pdctl.views.progress_live import LiveProgress
from pdctl.views.progress_plain import NoProgress, PlainProgress
from pdctl.views.text import display_width

Golden = Callable[[str, str], None]
MIB = 2**20


def waiting(elapsed_s: float, *, process_id: str = "decode-0.0", deadline_s: float = 600.0) -> Waiting:
    return Waiting(
        process_id=process_id,
        reason="connection refused",
        elapsed_s=elapsed_s,
        deadline_s=deadline_s,
        last_line="loading \x1b[1mweights\x1b[0m: layer 12 of 30 of a model with a long name",
    )


OPERATION: tuple[Event, ...] = (
    LockTaken(previous="ada@desk, since 12:04 for `up`"),
    Preparing(node="localhost", text="fetching smollm2", received_bytes=30 * MIB, total_bytes=98 * MIB),
    Stopping(process_id="prefill-0.0", node="localhost", cause="--page-size 16 -> 32", grace_s=10.0),
    Stopped(process_id="prefill-0.0", killed=True, elapsed_s=10.2),
    Starting(process_id="prefill-0.0", node="localhost", cause="--page-size 16 -> 32"),
    Starting(process_id="decode-0.0", node="localhost", cause="not running"),
    Started(process_id="prefill-0.0", node="localhost", pid=4711),
    Started(process_id="decode-0.0", node="localhost", pid=None),
    waiting(1.0),
    waiting(10.5),
    Ready(process_id="prefill-0.0", elapsed_s=11.3),
    Failed(process_id="decode-0.0", reason="exited with code 1"),
    Verifying(url="http://127.0.0.1:8000/generate"),
    Verified(text=" Paris.\nThe", elapsed_s=0.42),
)


PREFILLS = tuple((f"prefill-{number}.0", f"n{number + 1:02}") for number in range(32))
MANY: tuple[tuple[Event, ...], ...] = (
    tuple(Stopping(process_id=each, node=node, cause="moves", grace_s=10.0) for each, node in PREFILLS[:2]),
    tuple(Stopped(process_id=each, killed=False, elapsed_s=1.0) for each, _ in PREFILLS[:2]),
    tuple(Starting(process_id=each, node=node, cause="not running") for each, node in PREFILLS),
    tuple(
        Started(process_id=each, node=node, pid=4000 + number) for number, (each, node) in enumerate(PREFILLS)
    ),
    tuple(waiting(10.0, process_id=each) for each, _ in PREFILLS),
    tuple(
        Ready(process_id=each, elapsed_s=11.0 + number / 10) for number, (each, _) in enumerate(PREFILLS[:30])
    ),
    tuple(Failed(process_id=each, reason="exited with code 1") for each, _ in PREFILLS[30:]),
)


def said(*events: Event) -> list[str]:
    out = io.StringIO()
    with PlainProgress(out) as sink:
        for event in events:
            sink.on(event)
    return out.getvalue().splitlines()


def board_of(*events: Event) -> Board:
    board = Board()
    for event in events:
        board = after(board, event)
    return board


def test_the_plain_screen_of_an_operation(golden: Golden) -> None:
    golden("screens/up-progress-pipe.txt", "\n".join(said(*OPERATION)) + "\n")


@pytest.mark.parametrize("width", [80, 40])
def test_the_live_screen_of_an_operation(golden: Golden, width: int) -> None:
    lines = list(board_lines(board_of(*OPERATION[:-4]), Canvas(width=width), max_lines=20))
    golden(f"screens/up-progress-{width}.txt", "\n".join(lines) + "\n")
    assert all(display_width(line) < width for line in lines)


def test_the_json_of_an_operation_is_a_line_per_event(golden: Golden) -> None:
    out = io.StringIO()
    with JsonProgress(out) as sink:
        for event in OPERATION:
            sink.on(event)
    assert all(json.loads(line)["event"] for line in out.getvalue().splitlines())
    golden("screens/up-progress.jsonl", out.getvalue())


def test_a_deadline_that_never_comes_is_null_in_json_and_unsaid_in_text() -> None:
    out = io.StringIO()
    event = waiting(10.0, deadline_s=float("inf"))
    JsonProgress(out).on(event)
    assert json.loads(out.getvalue())["deadline_s"] is None
    assert said(event)[0].startswith("waiting for decode-0.0, 10s: ")


def test_a_waiting_process_is_told_every_ten_seconds() -> None:
    ticks = [waiting(float(second)) for second in range(1, 36)]
    assert [line.split(" of ")[0] for line in said(*ticks)] == [
        "waiting for decode-0.0, 10s",
        "waiting for decode-0.0, 20s",
        "waiting for decode-0.0, 30s",
    ]


def test_a_process_that_waits_anew_is_told_from_its_own_start() -> None:
    lines = said(waiting(30.0), Ready(process_id="decode-0.0", elapsed_s=31.0), waiting(11.0))
    assert [line.split(":")[0] for line in lines] == [
        "waiting for decode-0.0, 30s of 10m",
        "ready decode-0.0 after 31s",
        "waiting for decode-0.0, 11s of 10m",
    ]


def test_a_fetch_is_told_at_each_tenth() -> None:
    steps = [
        Preparing(node="n1", text="fetching", received_bytes=number, total_bytes=1000)
        for number in range(1001)
    ]
    assert len(said(*steps)) == 11


def test_nothing_on_a_pipe_has_control_characters() -> None:
    assert all(line.isprintable() for line in said(*OPERATION))


def test_a_quiet_operation_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with NoProgress() as sink:
        for event in OPERATION:
            sink.on(event)
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_each_process_keeps_its_one_line() -> None:
    lines = list(board_lines(board_of(*OPERATION), Canvas(width=200), max_lines=20))
    assert [line.split()[0] for line in lines[1:]] == ["localhost", "prefill-0.0", "decode-0.0", "canary"]


def test_with_too_many_processes_those_that_still_wait_are_shown() -> None:
    ids = [f"decode-{number}.0" for number in range(100)]
    events = [Ready(process_id=each, elapsed_s=number) for number, each in enumerate(ids[:97])]
    events += [waiting(float(number), process_id=each) for number, each in enumerate(ids[97:])]
    lines = list(board_lines(board_of(*events), Canvas(width=80), max_lines=10))
    assert [line.split()[0] for line in lines] == ["decode-97.0", "decode-98.0", "decode-99.0", "and"]
    assert lines[-1] == "and 97 more; 97 of 100 done"


def test_the_board_never_grows_beyond_its_lines() -> None:
    events = [waiting(float(number), process_id=f"decode-{number}.0") for number in range(50)]
    assert len(list(board_lines(board_of(*events), Canvas(width=80), max_lines=7))) == 7


def test_processes_that_do_the_same_together_share_a_line(golden: Golden) -> None:
    out = io.StringIO()
    with PlainProgress(out) as sink:
        for events in MANY:
            sink.on(*events)
    golden("screens/up-progress-many-pipe.txt", out.getvalue())
    board = board_of(*(event for events in MANY[:3] for event in events))
    lines = list(board_lines(board, Canvas(width=80), max_lines=20))
    golden("screens/up-progress-many-80.txt", "\n".join(lines) + "\n")


def test_the_live_display_draws_what_happens_and_leaves_no_line_behind() -> None:
    out = io.StringIO()
    with LiveProgress(out, Canvas(width=80, color=False, live=True)) as sink:
        sink.on(Ready(process_id="prefill-0.0", elapsed_s=1.0))
    text = out.getvalue()
    assert "prefill-0.0  ready" in text
    assert text.endswith("\x1b[2K")  # the last thing done is to erase


def test_events_of_many_threads_are_whole_lines() -> None:
    out = io.StringIO()
    sink = PlainProgress(out)
    threads = [threading.Thread(target=lambda: [sink.on(OPERATION[0]) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(out.getvalue().splitlines()) == set(said(OPERATION[0]))
    assert len(out.getvalue().splitlines()) == 400
