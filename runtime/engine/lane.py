"""The batch and the pages of one attention-DP rank. Engine thread only.

Pages: a request starts with pages for its prompt and the first `RESERVED_NEW_TOKENS` of its answer, and
takes more one at a time. Reserving the whole answer instead would be simpler, but a chat request without a
limit asks for the rest of the context, and a handful of those would fill the pool with pages that nobody
writes. The price is that the pool can run dry under running requests. Then the youngest is *retracted*: it
gives its pages back, keeps its tokens, and is computed again when there is room. The oldest is never
retracted, so it finishes, so everyone does.
"""

from __future__ import annotations

import logging
from collections import deque

from runtime.engine.batching import plan_step
from runtime.engine.compute import PageSource
from runtime.engine.live import LiveRequest
from runtime.kv.layout import KVLayout

RESERVED_NEW_TOKENS = 128

Plan = list[tuple[LiveRequest, int]]

_log = logging.getLogger(__name__)


class Lane:
    """`waiting` wants pages; `arrived` has them, and K/V, and wants a place in the batch: `running`."""

    def __init__(self, allocator: PageSource, layout: KVLayout, *, max_running: int, chunk_size: int) -> None:
        self.allocator = allocator
        self.num_lives = 0  # requests that belong here, wherever they are in their life
        self.num_retracted = 0
        self._layout = layout
        self._max_running = max_running
        self._chunk_size = chunk_size
        self._waiting: deque[LiveRequest] = deque()
        self._arrived: deque[LiveRequest] = deque()
        self._running: list[LiveRequest] = []  # oldest first
        self._is_starved = False  # a running request lacks a page, and nobody can be retracted

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting) + len(self._arrived)

    def queue(self, live: LiveRequest) -> None:
        (self._arrived if live.pages else self._waiting).append(live)

    def reserve(self, live: LiveRequest) -> bool:
        # A request that was retracted, or waits here for another reason, came before the role's.
        return not self._waiting and self._take_pages(live)

    def plan(self) -> Plan:
        """Admit what fits; then, who is computed next and how many tokens of it."""
        self._grow_pages()  # first: a new request must not take the page that a running one needs
        self._fill_batch()
        ready = [live for live in self._running if self._has_pages(live)]
        return plan_step(ready, chunk_budget=self._chunk_size)

    def leave_batch(self, live: LiveRequest) -> None:
        self._running.remove(live)

    def remove(self, live: LiveRequest) -> None:
        for place in (self._waiting, self._arrived, self._running):
            if live in place:
                place.remove(live)

    def free(self, live: LiveRequest) -> None:
        pages, live.pages = live.pages, ()
        self.allocator.free(pages)

    def _take_pages(self, live: LiveRequest) -> bool:
        if self._is_starved and self._running:
            return False  # the next free page belongs to a request that is already running
        num_new = min(live.max_new_tokens - live.num_generated, RESERVED_NEW_TOKENS)
        num_slots = len(live.token_ids) + num_new - 1  # the last token is never computed
        pages = self.allocator.alloc(self._layout.num_pages_for(num_slots))
        if pages is None:
            return False
        live.pages = pages
        return True

    def _fill_batch(self) -> None:
        """Arrived requests first: they hold pages, and give them back only by running."""
        while self._arrived and len(self._running) < self._max_running:
            self._running.append(self._arrived.popleft())
        while self._waiting and len(self._running) < self._max_running:
            # No overtaking: a large request would starve behind a stream of small ones.
            if not self._take_pages(self._waiting[0]):
                return
            self._running.append(self._waiting.popleft())

    def _grow_pages(self) -> None:
        self._is_starved = False
        for live in list(self._running):
            while live in self._running and not self._has_pages(live):
                page = self.allocator.alloc(1, after=live.pages[-1])
                if page is not None:
                    live.pages += page
                elif not self._retract_younger_than(live):
                    self._is_starved = True  # until a transfer ends: then its request can be retracted
                    break

    def _has_pages(self, live: LiveRequest) -> bool:
        return len(live.pages) * self._layout.page_size >= len(live.token_ids)

    def _retract_younger_than(self, live: LiveRequest) -> bool:
        """Take the pages of the newest request that has computed K/V. False when that is `live` itself.

        Those that wait for a place in the batch count as newest: they hold pages, and cannot give them back
        by running when the batch is full.
        """
        if self._arrived:
            youngest = self._arrived.pop()
        elif self._running[-1] is not live:
            youngest = self._running.pop()
        else:
            return False
        self.free(youngest)
        youngest.num_computed = 0
        self._waiting.appendleft(youngest)
        self.num_retracted += 1
        _log.info("retracted `%s` after %d tokens: no free page", youngest.rid, youngest.num_generated)
        return True
