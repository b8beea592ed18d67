"""Output followed through cuts."""

from __future__ import annotations

import json

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.calls import LogLine, LogNotice
from pdctl.executors.link import NodeLink
from pdctl.executors.log_stream import LogRequest, NodeLogs
from pdctl.executors.shell import Completed, UnreachableError


class Tap:
    """A shell whose streams give what a test says: entries of the shim, then maybe a cut."""

    def __init__(self, *streams: list[object]) -> None:
        self._streams = list(streams)
        self.requests: list[dict[str, object]] = []

    def run(self, argv, *, stdin=b"", timeout_s):
        return Completed(code=0, stdout=b"[]", stderr=b"")

    def follow(self, argv, *, stdin=b""):
        self.requests.append(json.loads(stdin))
        stream = self._streams.pop(0)
        if isinstance(stream[0], Exception):
            raise stream[0]
        return _Lines(stream)


class _Lines:
    def __init__(self, items) -> None:
        self._items = items

    def __iter__(self):
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            yield json.dumps(item).encode()

    def close(self) -> None:
        self._items = []


def _entry(text: str, mark: object = None) -> dict[str, object]:
    entry = {"process_id": "a-0.0", "run_id": "000001", "line": text}
    return entry if mark is None else {**entry, "mark": mark}


def _line(text: str) -> LogLine:
    return LogLine(process_id="a-0.0", run_id="000001", text=text)


@pytest.fixture
def logs_of():
    def make(tap: Tap, *, follow: bool, silent_after_s: float = 60.0) -> NodeLogs:
        link = NodeLink(name="n1", shell=tap, python="py", root="/runs")
        request = LogRequest(deployment="demo", process_ids=("a-0.0",), tail=5, follow=follow)
        return NodeLogs(link, request, try_again_every_s=0.0, silent_after_s=silent_after_s)

    return make


def test_a_cut_is_told_and_followed_by_what_was_missed(logs_of):
    cut = UnreachableError("connection reset")
    mark = ["000001", None, 8]
    tap = Tap([_entry("one"), _entry("two", mark), cut], [cut], [_entry("three")])
    assert list(logs_of(tap, follow=True)) == [
        _line("one"),
        _line("two"),
        LogNotice(node="n1", text="can't be reached: connection reset"),
        LogNotice(node="n1", text="answers again"),
        _line("three"),
    ]
    assert [request["marks"] for request in tap.requests] == [{}, {"a-0.0": mark}, {"a-0.0": mark}]


def test_a_node_that_is_lost_from_the_beginning_is_waited_for(logs_of):
    tap = Tap([UnreachableError("no route to host")], [_entry("one")])
    texts = [item.text for item in logs_of(tap, follow=True)]
    assert texts == ["can't be reached: no route to host", "answers again", "one"]


def test_without_following_a_lost_node_is_a_fault(logs_of):
    tap = Tap([_entry("one"), UnreachableError("connection reset")])
    lines = iter(logs_of(tap, follow=False))
    assert next(lines) == _line("one")
    with pytest.raises(DiagnosticError, match="PD503: n1 can't be reached: connection reset"):
        next(lines)


def test_closing_ends_the_wait_for_a_lost_node(logs_of):
    logs = logs_of(Tap([UnreachableError("no route to host")]), follow=True)
    items = iter(logs)
    assert next(items).text == "can't be reached: no route to host"
    logs.close()
    assert list(items) == []


def test_a_node_that_gives_no_sign_of_life_is_told_once_and_so_is_its_next_one(logs_of):
    logs = logs_of(Tap([_entry("one"), _entry("two")]), follow=True, silent_after_s=0.0)
    items = iter(logs)
    assert next(items) == _line("one")
    (notice,) = [*logs.overdue(), *logs.overdue()]
    assert "has been silent for" in notice.text
    assert next(items) == LogNotice(node="n1", text="is heard again")
    assert next(items) == _line("two")
