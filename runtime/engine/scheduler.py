"""Continuous batching over paged KV pools. One object, one thread, no locks.

A request passes through: the role (which may make it wait for its other half) -> a lane, which has the pages
and the batch of one attention-DP rank -> ended. One step computes the batches of all lanes together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from runtime.engine.admission import choose_lane, max_answer_len, refusal
from runtime.engine.compute import Chunk, Model
from runtime.engine.lane import Lane, Plan
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
        rooms_choose_lanes: bool = False,
    ) -> None:
        """`max_running` and `chunk_size` are shared by the lanes, as in SGLang."""
        self._model = model
        num_lanes = len(model.allocators)
        self._lanes = tuple(
            Lane(
                allocator,
                model.layout,
                max_running=max(1, max_running // num_lanes),
                chunk_size=max(1, chunk_size // num_lanes),
            )
            for allocator in model.allocators
        )
        self._rooms_choose_lanes = rooms_choose_lanes
        self._lives: dict[str, LiveRequest] = {}
        self._num_requests = self._num_finished = self._num_aborted = 0
        self._num_prompt_tokens = self._num_generated_tokens = 0
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
        live.attn_dp_rank = choose_lane(
            request, [lane.num_lives for lane in self._lanes], by_room=self._rooms_choose_lanes
        )
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
        self._lane(live).num_lives += 1
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
        plan = [work for lane in self._lanes for work in lane.plan()]
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
            num_running=sum(lane.num_running for lane in self._lanes),
            num_waiting=sum(lane.num_waiting for lane in self._lanes),
            num_handshaking=counts.num_handshaking,
            num_transferring=counts.num_transferring,
            num_free_pages=sum(lane.allocator.num_free for lane in self._lanes),
            num_pages=sum(lane.allocator.num_pages for lane in self._lanes),
            transfer_bytes=counts.transfer_bytes,
            extra={
                "num_retracted": sum(lane.num_retracted for lane in self._lanes),
                "num_links": counts.num_links,
                "num_rooms": counts.num_rooms,
                "num_reports": counts.num_reports,
            },
        )

    def close(self, finish: Finish) -> None:
        """End all requests, then the role."""
        for live in list(self._lives.values()):
            self.end(live, finish)
        self._role.close()

    # What the role calls.

    def queue(self, live: LiveRequest) -> None:
        self._lane(live).queue(live)

    def reserve(self, live: LiveRequest) -> bool:
        return self._lane(live).reserve(live)

    def resume(self, live: LiveRequest, first: Sampled) -> None:
        live.num_computed = live.prompt_len
        self._accept(live, first)
        if live.finish is None:
            self._lane(live).queue(live)

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
            self._lane(live).free(live)

    def _lane(self, live: LiveRequest) -> Lane:
        return self._lanes[live.attn_dp_rank]

    # The step.

    def _compute(self, plan: Plan) -> dict[LiveRequest, Sampled]:
        """Run the model over the plan; a token for each request whose last token was computed."""
        chunks = [
            Chunk(
                token_ids=tuple(live.token_ids[live.num_computed : live.num_computed + num_tokens]),
                start_pos=live.num_computed,
                pages=live.pages,
                attn_dp_rank=live.attn_dp_rank,
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

    def _deliver(self, plan: Plan, sampled: dict[LiveRequest, Sampled]) -> None:
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
                self._lane(live).leave_batch(live)
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
        lane = self._lane(live)
        lane.num_lives -= 1
        lane.remove(live)
        if finish.reason is FinishReason.ABORT:
            self._num_aborted += 1
        else:
            self._num_finished += 1
        self._role.released(live)
        if not live.num_holds:
            lane.free(live)
        self._emit(live, sampled, finish)

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
