"""Progress for programs: one JSON object a line."""

from __future__ import annotations

import threading

from pdctl.events import Event
from pdctl.views.canvas import Writable
from pdctl.views.machine import event_value, to_json


class JsonProgress:
    """An `EventSink` that writes each event as it is. Events may come from several threads."""

    def __init__(self, out: Writable) -> None:
        self._out = out
        self._lock = threading.Lock()

    def on(self, *events: Event) -> None:
        with self._lock:
            for event in events:
                print(to_json(event_value(event), indent=None), file=self._out, flush=True)

    def __enter__(self) -> JsonProgress:
        return self

    def __exit__(self, *_exception: object) -> None:
        """Nothing is open."""
