"""Continuous batching over a paged KV pool. One object, one thread, no locks.

A request passes through: the role (which may make it wait for its other half) -> `waiting` (wants pages),
or `arrived` (has pages and K/V, wants a place in the batch) -> `running` (computed each step) -> ended.

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
from collections.abc import Callable

from runtime.engine.admission import max_answer_len, refusal
from runtime.engine.batching import plan_step
from runtime.engine.compute import Chunk, Model
from runtime.engine.live import LiveRequest, Sampled, abort, finish_after
from runtime.engine.request import (
    EngineStats,
    Finish,
    FinishReason,
    GenerateInput,
    Listener,
    TokenEvent,
)
from runtime.engine.role import Desk, Role

RESERVED_NEW_TOKENS = 128

_log = logging.getLogger(__name__)


class Scheduler:
    """Owns every request of the engine; the `Desk` of its role."""

    def __init__(
        self,
        model: Model,
        *,
        max_running: int,
        chunk_size: int,
        open_role: Callable[[Desk], Role],
    ) -> None:
        self._model = model
        self._max_running = max_running
        self._chunk_size = chunk_size
        self._lives: dict[str, LiveRequest] = {}
        self._waiting: deque[LiveRequest] = deque()
        self._arrived: deque[LiveRequest] = deque()
        self._running: list[LiveRequest] = []  # oldest first
        self._is_starved = False  # a running request lacks a page, and nobody can be retracted
        self._num_requests = self._num_finished = self._num_aborted = 0
        self._num_prompt_tokens = self._num_generated_tokens = self._num_retracted = 0
        self._role = open_role(self)

    # What the loop calls.

    def submit(self, request: GenerateInput, listener: Listener) -> None:
        live = LiveRequest(
            request=request,
            listener=listener,
            max_new_tokens=max_answer_len(request, self._model),
            token_ids=list(request.token_ids),
        )
        self._num_requests += 1
        refused = refusal(request, self._model)
        if request.rid in self._lives:
            refused = abort(f"the request id `{request.rid}` is in use", status=400)
        if refused is not None:
            live.finish = refused
            self._num_aborted += 1
            self._emit(live, (), refused)
            self._role.refused(live)
            return
        self._lives[live.rid] = live
        self._num_prompt_tokens += live.prompt_len
        self._role.admit(live)

    def abort(self, rid: str) -> None:
        live = self._lives.get(rid)
        if live is not None:
            self.end(live, abort("the request was aborted", status=400))

    def sweep(self, now_s: float) -> None:
        self._role.sweep(now_s)

    def step(self) -> bool:
        """Admit what fits, compute one batch, deliver what it gave. False when there was nothing to compute:

        every request waits for another process, or for pages that a transfer holds.
        """
        self._grow_pages()  # first: a new request must not take the page that a running one needs
        self._fill_batch()
        plan = plan_step(
            [live for live in self._running if self._has_pages(live)], chunk_budget=self._chunk_size
        )
        if not plan:
            return False
        try:
            sampled = self._compute(plan)
        except RuntimeError as error:  # what torch raises, out of memory included
            _log.exception("a step failed")
            for live, _ in plan:
                self.end(live, abort(f"the engine failed to compute this request: {error}", status=500))
        else:
            self._deliver(plan, sampled)
        return True

    def stats(self) -> EngineStats:
        counts = self._role.counts()
        return EngineStats(
            num_requests=self._num_requests,
            num_finished=self._num_finished,
            num_aborted=self._num_aborted,
            num_prompt_tokens=self._num_prompt_tokens,
            num_generated_tokens=self._num_generated_tokens,
            num_running=len(self._running),
            num_waiting=len(self._waiting) + len(self._arrived),
            num_handshaking=counts.num_handshaking,
            num_transferring=counts.num_transferring,
            num_free_pages=self._model.allocator.num_free,
            num_pages=self._model.allocator.num_pages,
            transfer_bytes=counts.transfer_bytes,
            extra={"num_retracted": self._num_retracted, "num_links": counts.num_links},
        )

    def close(self, finish: Finish) -> None:
        """End all requests, then the role."""
        for live in list(self._lives.values()):
            self.end(live, finish)
        self._role.close()

    # What the role calls.

    def queue(self, live: LiveRequest) -> None:
        (self._arrived if live.pages else self._waiting).append(live)

    def reserve(self, live: LiveRequest) -> bool:
        # A request that was retracted, or waits here for another reason, came before the role's.
        return not self._waiting and self._take_pages(live)

    def _take_pages(self, live: LiveRequest) -> bool:
        if self._is_starved and self._running:
            return False  # the next free page belongs to a request that is already running
        num_new = min(live.max_new_tokens - live.num_generated, RESERVED_NEW_TOKENS)
        num_slots = len(live.token_ids) + num_new - 1  # the last token is never computed
        pages = self._model.allocator.alloc(self._model.layout.num_pages_for(num_slots))
        if pages is None:
            return False
        live.pages = pages
        return True

    def resume(self, live: LiveRequest, first: Sampled) -> None:
        live.num_computed = live.prompt_len
        self._accept(live, first)
        if live.finish is None:
            self._arrived.append(live)

    def conclude(self, live: LiveRequest, sampled: Sampled, finish: Finish) -> None:
        live.token_ids.append(sampled.token_id)
        self._num_generated_tokens += 1
        self._close_request(live, finish, (sampled,))

    def end(self, live: LiveRequest, finish: Finish) -> None:
        self._close_request(live, finish, ())

    def hold(self, live: LiveRequest) -> None:
        live.num_holds += 1

    def unhold(self, live: LiveRequest) -> None:
        live.num_holds -= 1
        if live.finish is not None and not live.num_holds:
            self._free(live)

    # The step.

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
                page = self._model.allocator.alloc(1, after=live.pages[-1])
                if page is not None:
                    live.pages += page
                elif not self._retract_younger_than(live):
                    self._is_starved = True  # until a transfer ends: then its request can be retracted
                    break

    def _has_pages(self, live: LiveRequest) -> bool:
        return len(live.pages) * self._model.layout.page_size >= len(live.token_ids)

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
        self._free(youngest)
        youngest.num_computed = 0
        self._waiting.appendleft(youngest)
        self._num_retracted += 1
        _log.info("retracted `%s` after %d tokens: no free page", youngest.rid, youngest.num_generated)
        return True

    def _compute(self, plan: list[tuple[LiveRequest, int]]) -> dict[LiveRequest, Sampled]:
        """Run the model over the plan; a token for each request whose last token was computed."""
        chunks = [
            Chunk(
                token_ids=tuple(live.token_ids[live.num_computed : live.num_computed + num_tokens]),
                start_pos=live.num_computed,
                pages=live.pages,
            )
            for live, num_tokens in plan
        ]
        logits = self._model.runner.forward(chunks)
        rows = [row for row, (live, num_tokens) in enumerate(plan) if live.num_uncomputed == num_tokens]
        complete = [plan[row][0] for row in rows]
        if not complete:
            return {}
        wanted = logits if len(rows) == len(plan) else logits[rows]
        return dict(zip(complete, self._model.sampler.sample(wanted, complete), strict=True))

    def _deliver(self, plan: list[tuple[LiveRequest, int]], sampled: dict[LiveRequest, Sampled]) -> None:
        for live, num_tokens in plan:
            if live.finish is not None:
                continue  # ended by the delivery of another one
            live.num_computed += num_tokens
            token = sampled.get(live)
            if not live.is_in_prompt:
                if token is not None:
                    self._accept(live, token)
                continue
            if token is not None:
                self._running.remove(live)
            self._role.computed(live, token)

    def _accept(self, live: LiveRequest, sampled: Sampled) -> None:
        live.token_ids.append(sampled.token_id)
        self._num_generated_tokens += 1
        finish = finish_after(live, self._model.eos_token_ids)
        if finish is not None:
            self._close_request(live, finish, (sampled,))
        else:
            self._emit(live, (sampled,), None)

    # The end.

    def _close_request(self, live: LiveRequest, finish: Finish, sampled: tuple[Sampled, ...]) -> None:
        if live.finish is not None:
            return
        live.finish = finish
        del self._lives[live.rid]
        for place in (self._waiting, self._arrived, self._running):
            if live in place:
                place.remove(live)
        if finish.reason is FinishReason.ABORT:
            self._num_aborted += 1
        else:
            self._num_finished += 1
        self._role.released(live)
        if not live.num_holds:
            self._free(live)
        self._emit(live, sampled, finish)

    def _free(self, live: LiveRequest) -> None:
        pages, live.pages = live.pages, ()
        self._model.allocator.free(pages)

    def _emit(self, live: LiveRequest, sampled: tuple[Sampled, ...], finish: Finish | None) -> None:
        event = TokenEvent(
            rid=live.rid,
            token_ids=tuple(one.token_id for one in sampled),
            logprobs=tuple(one.logprob for one in sampled if one.logprob is not None),
            finish=finish,
        )
        try:
            live.listener(event)
        except RuntimeError:  # an event loop that was closed under its requests
            _log.warning("the listener of `%s` is gone", live.rid)
