"""The role of an engine that does both halves itself: the baseline that disaggregation is compared with."""

from __future__ import annotations

from runtime.engine.live import LiveRequest, Sampled
from runtime.engine.role import Desk, RoleCounts


class UnifiedRole:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def admit(self, live: LiveRequest) -> None:
        self._desk.queue(live)

    def refused(self, live: LiveRequest) -> None:
        pass  # nobody else knows of it

    def computed(self, live: LiveRequest, first: Sampled | None) -> None:
        if first is not None:
            self._desk.resume(live, first)

    def released(self, live: LiveRequest) -> None:
        pass  # it holds nothing but pages, which are the scheduler's

    def sweep(self, now_s: float) -> None:
        pass

    def counts(self) -> RoleCounts:
        return RoleCounts()

    def close(self) -> None:
        pass
