"""Requests and what becomes of them, between an operator and a steward."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.events import Ready
from pdctl.executors.deputy import Request
from pdctl.executors.slurm_job.mailbox import EventReading, Mailbox

UP = Request(verb="up", who="ada@desk", document="schema: pdctl/v1", options={"wait": True})
READY = Ready(process_id="router-0.0", elapsed_s=1.5)


def test_a_request_arrives_as_it_was_posted_and_only_once(mailbox: Mailbox):
    mailbox.post(UP)
    assert mailbox.take() == UP
    assert mailbox.take() is None


def test_requests_are_taken_in_the_order_in_which_they_were_made(mailbox: Mailbox):
    first, second = Request(verb="up", who="ada@desk"), Request(verb="down", who="ada@desk")
    mailbox.post(second)
    mailbox.post(first)
    assert [mailbox.take(), mailbox.take()] == [first, second]


def test_a_request_is_either_begun_with_or_withdrawn(mailbox: Mailbox):
    taken, withdrawn = Request(verb="up", who="ada@desk"), Request(verb="up", who="ada@desk")
    mailbox.post(taken)
    assert mailbox.take() == taken
    assert not mailbox.withdraw(taken.token)
    mailbox.post(withdrawn)
    assert mailbox.withdraw(withdrawn.token)
    assert mailbox.take() is None


def test_a_request_that_a_lost_steward_had_begun_with_is_taken_by_the_next(mailbox: Mailbox):
    mailbox.post(UP)
    mailbox.take()
    mailbox.put_back()
    assert mailbox.take() == UP


def test_a_finished_request_is_not_taken_again(mailbox: Mailbox):
    mailbox.post(UP)
    mailbox.take()
    mailbox.log(UP.token).finish({"changes": []})
    mailbox.put_back()
    assert mailbox.take() is None


def test_what_happens_is_read_as_it_comes(mailbox: Mailbox):
    log, reading = mailbox.log("1-a"), mailbox.reading("1-a")
    assert not reading.more().is_news
    log.on(READY)
    assert reading.more().events == (READY,)
    assert not reading.more().is_news
    log.finish({"elapsed_s": 2.5})
    outcome = reading.more().outcome
    assert outcome is not None
    assert outcome.number("elapsed_s") == 2.5


def test_half_a_line_waits_for_its_other_half(mailbox: Mailbox):
    mailbox.log("1-a").on(READY)
    path = mailbox.events / "1-a.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    reading = mailbox.reading("1-a")
    assert not reading.more().is_news
    path.write_bytes(whole)
    assert reading.more().events == (READY,)


def test_faults_of_the_steward_arrive_as_diagnostics(mailbox: Mailbox):
    fault = Diagnostic(code="PD602", message="`decode-0.0` exited with code 3", notes=("on node2",))
    mailbox.log("1-a").fail([fault])
    assert mailbox.reading("1-a").more().diagnostics == (fault,)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"verb": "dance", "who": "a", "ids": [], "options": {}}', b'{"verb": "up"}'],
    ids=["empty", "no object", "of an unknown verb", "too little"],
)
def test_a_request_that_cannot_be_read_is_answered_and_passed_over(mailbox: Mailbox, content: bytes):
    (mailbox.requests / "0-bad.json").write_bytes(content)
    mailbox.post(UP)
    assert mailbox.take() == UP
    assert [each.code for each in mailbox.reading("0-bad").more().diagnostics] == ["PD546"]


def test_a_log_that_is_no_log_ends_the_reading(mailbox: Mailbox):
    (mailbox.events / "1-a.jsonl").write_bytes(b"what is this\n")
    assert [each.code for each in mailbox.reading("1-a").more().diagnostics] == ["PD546"]


def test_a_line_without_end_is_not_read_for_ever(tmp_path: Path):
    (tmp_path / "1-a.jsonl").write_bytes(b"x" * 200)
    with pytest.raises(DiagnosticError, match="PD546"):
        EventReading(path=tmp_path / "1-a.jsonl", max_read_bytes=100).more()


def test_files_that_are_no_requests_are_left_alone(mailbox: Mailbox):
    for name in ("notes.txt", ".hidden.json", "UPPER case.json"):
        (mailbox.requests / name).write_text("{}")
    assert mailbox.take() is None
    assert len(list(Path(mailbox.requests).iterdir())) == 3
