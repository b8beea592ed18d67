"""Show the events of a fetch: JSON lines on stdout, or text on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from runtime.models.events import Done, Event, Failed, Progress, Waiting, to_json

BAR_WIDTH = 30
PLAIN_INTERVAL_S = 5.0


class JsonLines:
    """One JSON object per line, flushed at once: somebody reads it while we work."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __call__(self, event: Event) -> None:
        print(to_json(event), file=self._out, flush=True)


class TerminalBar:
    """A bar that redraws its line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_open = False  # a bar stands on the present line

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress):
            self._out.write(f"\r{bar(event)}")
            self._is_open = True
        else:
            self._out.write(("\n" if self._is_open else "") + sentence(event) + "\n")
            self._is_open = False
        self._out.flush()


class PlainLines:
    """Lines for a log file: progress only now and then, and only when something has moved."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._shown_at_s: float | None = None
        self._shown: Progress | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress) and not self._is_due(event):
            return
        print(sentence(event), file=self._out, flush=True)

    def _is_due(self, event: Progress) -> bool:
        now_s = self._clock()
        is_early = self._shown_at_s is not None and now_s - self._shown_at_s < PLAIN_INTERVAL_S
        if is_early or event == self._shown:
            return False
        self._shown_at_s, self._shown = now_s, event
        return True


def sentence(event: Event) -> str:
    match event:
        case Waiting(name=name):
            return f"waiting: another process fetches `{name}`"
        case Progress(name=name, received_bytes=received_bytes, total_bytes=total_bytes):
            return f"fetching `{name}`: {_megabytes(received_bytes)} of {_megabytes(total_bytes)}"
        case Done(path=path):
            return f"in the cache: {path}"
        case Failed(message=message, hint=hint):
            return f"error: {message}\n\nhint: {hint}"


def bar(progress: Progress) -> str:
    filled = BAR_WIDTH * progress.received_bytes // progress.total_bytes
    share = 100 * progress.received_bytes // progress.total_bytes
    return f"{progress.name} [{'#' * filled:{BAR_WIDTH}}] {share:3d} % of {_megabytes(progress.total_bytes)}"


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB"
