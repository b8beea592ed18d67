"""Streams of values made from streams of JSON lines, of one node or of several at a time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.executors.link import unreachable_node
from pdctl.executors.shell import LineStream, UnreachableError
from pdctl.fields import FieldError, Fields, parse_fields

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
MAX_BUFFERED = 1000  # lines; a reader that falls behind slows the nodes down instead of filling memory
ASK_OVERDUE_EVERY_S = 1.0


class _End:
    """The last item of one source."""


class ValueStream(Generic[T]):
    """One node's lines, each read into a value. A lost node or a line of something else is a diagnostic."""

    def __init__(self, source: LineStream, read: Callable[[Fields], T], *, label: str) -> None:
        self._source = source
        self._read = read
        self._label = label  # of the node, for diagnostics

    def __iter__(self) -> Iterator[T]:
        try:
            for line in self._source:
                yield self._read(parse_fields("a line of the shim", line))
        except UnreachableError as error:
            raise unreachable_node(self._label, error) from error
        except FieldError as error:
            raise DiagnosticError.one(
                "PD502", f"the shim on {self._label} gave a line that is not its own: {error}"
            ) from error

    def close(self) -> None:
        self._source.close()


class Source(Protocol[T_co]):
    """One stream of several."""

    def __iter__(self) -> Iterator[T_co]: ...

    def close(self) -> None: ...


class MergedStream(Generic[T]):
    """Several streams as one, each value as it comes. Iterate once; `close` from any thread ends it.

    Faults of a source end that source alone, and are raised as one when all have ended. `overdue` is asked
    once a second for what there is to tell of sources that give nothing.
    """

    def __init__(self, sources: Sequence[Source[T]], *, overdue: Callable[[], Iterable[T]] = tuple) -> None:
        self._sources = sources
        self._overdue = overdue
        self._items: queue.Queue[T | _End | DiagnosticError] = queue.Queue(MAX_BUFFERED)
        self._is_closed = threading.Event()

    def __iter__(self) -> Iterator[T]:
        for number, source in enumerate(self._sources):
            threading.Thread(target=self._drain, args=(source,), name=f"log-{number}", daemon=True).start()
        num_open = len(self._sources)
        faults: dict[Diagnostic, None] = {}
        asked_at = time.monotonic()
        while num_open:
            if time.monotonic() - asked_at >= ASK_OVERDUE_EVERY_S:
                asked_at = time.monotonic()
                yield from self._overdue()
            try:
                item = self._items.get(timeout=ASK_OVERDUE_EVERY_S)
            except queue.Empty:
                continue
            if isinstance(item, _End):
                num_open -= 1
            elif isinstance(item, DiagnosticError):
                faults.update(dict.fromkeys(item.diagnostics))
            else:
                yield item
        if faults:
            raise DiagnosticError(faults)

    def close(self) -> None:
        self._is_closed.set()
        for source in self._sources:
            source.close()

    def _drain(self, source: Source[T]) -> None:
        try:
            for item in source:
                self._put(item)
        except DiagnosticError as error:
            self._put(error)
        self._put(_End())

    def _put(self, item: T | _End | DiagnosticError) -> None:
        """Wait for room, but not for a reader that has left."""
        while not self._is_closed.is_set():
            try:
                self._items.put(item, timeout=0.5)
            except queue.Full:
                continue
            return
        if isinstance(item, _End):
            # A reader that closed from another thread still waits in `get`.
            with self._items.mutex:
                self._items.queue.append(item)
                self._items.not_empty.notify()
