"""Progress for a pipe or a log file: a line per change, and a sign of life every ten seconds."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from pdctl.events import Event, Preparing, Queued, Ready, Waiting
from pdctl.views.canvas import Writable
from pdctl.views.sentences import sentences

WAITING_INTERVAL_S = 10.0
PREPARING_STEP = 10  # tenths of the whole
QUEUED_INTERVAL_S = 60.0  # unless the cluster's reason changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What was said last, by process or node."""

    waited_s: dict[str, float]
    queued: Queued | None
    prepared: dict[str, tuple[str, int]]


class PlainProgress:
    """An `EventSink` that writes lines. Events may come from several threads."""

    def __init__(self, out: Writable) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._said = Said(waited_s={}, queued=None, prepared={})

    def on(self, *events: Event) -> None:
        with self._lock:
            news: list[Event] = []
            for event in events:
                self._said, is_news = remember(self._said, event)
                news += [event] if is_news else []
            for line in sentences(news):
                print(line, file=self._out, flush=True)

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, *_exception: object) -> None:
        """Nothing is open."""


def remember(said: Said, event: Event) -> tuple[Said, bool]:
    """What has been said after `event`, and whether it's worth a line."""
    if isinstance(event, Waiting):
        last_s = said.waited_s.get(event.process_id, 0.0)
        if 0 <= event.elapsed_s - last_s < WAITING_INTERVAL_S:
            return said, False
        return replace(said, waited_s=said.waited_s | {event.process_id: event.elapsed_s}), True
    if isinstance(event, Queued):
        last = said.queued
        if last is not None and last.reason == event.reason:
            is_news = event.elapsed_s - last.elapsed_s >= QUEUED_INTERVAL_S
            return (replace(said, queued=event) if is_news else said), is_news
        return replace(said, queued=event), True
    if isinstance(event, Preparing):
        step = (event.text, _tenths(event))
        return replace(said, prepared=said.prepared | {event.node: step}), said.prepared.get(
            event.node
        ) != step
    if isinstance(event, Ready):
        return replace(said, waited_s={k: v for k, v in said.waited_s.items() if k != event.process_id}), True
    return said, True


def _tenths(event: Preparing) -> int:
    if event.received_bytes is None or not event.total_bytes:
        return 0
    return PREPARING_STEP * event.received_bytes // event.total_bytes


class NoProgress:
    """An `EventSink` for operators who asked for silence."""

    def on(self, *_events: Event) -> None:
        """Nothing is shown."""

    def __enter__(self) -> NoProgress:
        return self

    def __exit__(self, *_exception: object) -> None:
        """Nothing is open."""
