from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.shell import UnreachableError
from pdctl.executors.streams import MergedStream, ValueStream


class Tap:
    """A stream that gives what is put in until it is closed; an exception is raised."""

    def __init__(self) -> None:
        self._items: queue.Queue[bytes | Exception | None] = queue.Queue()
        self.put = self._items.put

    def __iter__(self) -> Iterator[bytes]:
        while (item := self._items.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    def close(self) -> None:
        self.put(None)


def _merged(*taps) -> MergedStream[int]:
    return MergedStream([ValueStream(tap, lambda fields: fields.integer("n"), label="n1") for tap in taps])


def test_values_of_several_sources_come_as_they_are_written():
    first, second = Tap(), Tap()
    values = iter(_merged(first, second))
    second.put(b'{"n": 2}')
    assert next(values) == 2
    first.put(b'{"n": 1}')
    assert next(values) == 1
    first.close()
    second.put(b'{"n": 3}')
    second.close()
    assert list(values) == [3]


def test_no_source_is_an_end(make_lines):
    assert list(_merged()) == []
    assert list(_merged(make_lines([]))) == []


def test_more_lines_than_are_buffered_all_arrive(make_lines):
    lines = [b'{"n": %d}' % number for number in range(2500)]
    assert sum(_merged(make_lines(lines), make_lines(lines))) == 2 * sum(range(2500))


def test_closing_ends_a_reader_that_waits_in_another_thread():
    stream = _merged(Tap())
    found: list[list[int]] = []
    reader = threading.Thread(target=lambda: found.append(list(stream)))
    reader.start()
    stream.close()
    reader.join(5)
    assert found == [[]]


def test_closing_ends_sources_whose_reader_has_left_with_a_full_buffer(make_lines):
    stream = _merged(make_lines([b'{"n": 1}'] * 5000))
    assert next(iter(stream)) == 1
    before = threading.active_count()
    stream.close()
    for thread in threading.enumerate():
        if thread.name.startswith("log-"):
            thread.join(5)
            assert not thread.is_alive()
    assert threading.active_count() < before


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (UnreachableError("cut"), "PD503: n1 can't be reached: cut"),
        (b"no json", "PD502: the shim on n1 gave a line that is not its own: a line of the shim is not JSON"),
        (b'{"error": "boom"}', "PD502: .* has no `n`"),
    ],
)
def test_a_fault_of_a_source_reaches_the_reader(item, message):
    tap = Tap()
    tap.put(item)
    with pytest.raises(DiagnosticError, match=message):
        list(_merged(tap))
