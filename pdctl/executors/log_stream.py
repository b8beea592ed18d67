"""The output of one machine's processes, followed through cuts of the connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.calls import LogLine, LogNotice
from pdctl.executors.link import NodeLink, unreachable_node
from pdctl.executors.shell import LineStream, UnreachableError
from pdctl.fields import FieldError, Fields, parse_fields

TRY_AGAIN_EVERY_S = 2.0
SILENT_AFTER_S = 5.0  # without a sign of life, of which the shim gives one every two seconds

LogItem = LogLine | LogNotice


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    deployment: str
    process_ids: tuple[str, ...]
    tail: int | None
    follow: bool


class NodeLogs:
    """Iterate once; `close` from any thread ends it.

    While following, a lost node is a notice, and so is its return; the output in between is not lost. What
    had been read but not yet told when the connection was cut may come twice.
    """

    def __init__(
        self,
        link: NodeLink,
        request: LogRequest,
        *,
        try_again_every_s: float = TRY_AGAIN_EVERY_S,
        silent_after_s: float = SILENT_AFTER_S,
    ) -> None:
        self._link = link
        self._request = request
        self._try_again_every_s = try_again_every_s
        self._silent_after_s = silent_after_s
        self._marks: dict[str, object] = {}  # how far each process was read, in the shim's own form
        self._source: LineStream | None = None
        self._is_closed = threading.Event()
        self._heard_at: float | None = None  # on the monotonic clock; None: nothing is to be heard now
        self._is_told_silent = False

    def __iter__(self) -> Iterator[LogItem]:
        is_lost = False
        while not self._is_closed.is_set():
            try:
                self._source = self._open()
                self._heard_at = time.monotonic() if self._request.follow else None
                if is_lost:
                    is_lost = False
                    yield LogNotice(node=self._link.label, text="answers again")
                yield from self._lines(self._source)
            except UnreachableError as error:
                self._heard_at, self._is_told_silent = None, False
                if not self._request.follow:
                    raise unreachable_node(self._link.label, error) from error
                if not is_lost:
                    is_lost = True
                    yield LogNotice(node=self._link.label, text=f"can't be reached: {error}")
                self._is_closed.wait(self._try_again_every_s)
                continue
            return

    def overdue(self) -> Iterator[LogNotice]:
        """That the node gives no sign of life, once, long before its connection counts as cut."""
        heard_at = self._heard_at
        if heard_at is None or self._is_told_silent or time.monotonic() - heard_at < self._silent_after_s:
            return
        self._is_told_silent = True
        text = f"has been silent for {self._silent_after_s:g} s; its `keepalive_s` says when it is lost"
        yield LogNotice(node=self._link.label, text=text)

    def close(self) -> None:
        self._is_closed.set()
        if self._source is not None:
            self._source.close()

    def _open(self) -> LineStream:
        request = self._request
        content: Mapping[str, object] = {
            "tail": request.tail,
            "follow": request.follow,
            "marks": self._marks,
        }
        names: Sequence[str] = (self._link.root(), request.deployment, *request.process_ids)
        source = self._link.follow("logs", names, content)
        if self._is_closed.is_set():  # `close` came before there was anything to close
            source.close()
        return source

    def _lines(self, source: LineStream) -> Iterator[LogItem]:
        try:
            for line in source:
                if self._heard_at is not None:
                    self._heard_at = time.monotonic()
                if self._is_told_silent:
                    self._is_told_silent = False
                    yield LogNotice(node=self._link.label, text="is heard again")
                if line:  # an empty one is a sign of life
                    yield self._read(parse_fields("a line of the shim", line))
        except FieldError as error:
            raise DiagnosticError.one(
                "PD502", f"the shim on {self._link.label} gave a line that is not its own: {error}"
            ) from error

    def _read(self, entry: Fields) -> LogLine:
        process_id = entry.text("process_id")
        if (mark := entry.values.get("mark")) is not None:
            self._marks[process_id] = mark
        run_id = entry.optional_text("run_id") or ""
        return LogLine(process_id=process_id, run_id=run_id, text=entry.text("line"))
