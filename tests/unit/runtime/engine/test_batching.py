from __future__ import annotations

from runtime.engine.batching import plan_step
from runtime.engine.live import LiveRequest
from runtime.engine.request import GenerateInput, SamplingParams


def _live(prompt_len: int, *, num_computed: int = 0, num_generated: int = 0) -> LiveRequest:
    request = GenerateInput(rid="r", token_ids=tuple(range(prompt_len)), sampling=SamplingParams())
    return LiveRequest(
        request=request,
        listener=lambda event: None,
        max_new_tokens=10,
        token_ids=list(range(prompt_len + num_generated)),
        num_computed=num_computed,
    )


def _plan(lives: list[LiveRequest], budget: int) -> list[tuple[int, int]]:
    return [(lives.index(live), num_tokens) for live, num_tokens in plan_step(lives, chunk_budget=budget)]


def test_prompts_share_the_budget_in_order_of_arrival():
    assert _plan([_live(10), _live(10), _live(10)], 15) == [(0, 10), (1, 5)]


def test_a_prompt_goes_on_where_it_stopped():
    assert _plan([_live(10, num_computed=8)], 15) == [(0, 2)]


def test_decoding_requests_always_get_their_token():
    decoding = _live(5, num_computed=6, num_generated=2)
    assert _plan([_live(100), decoding, decoding], 16) == [(0, 16), (1, 1), (1, 1)]


def test_the_last_token_of_a_prompt_counts_as_prompt():
    assert _plan([_live(16), _live(1)], 16) == [(0, 16)]


def test_a_retracted_request_is_computed_in_chunks_again():
    assert _plan([_live(10, num_generated=10)], 16) == [(0, 16)]


def test_no_requests_make_no_plan():
    assert _plan([], 16) == []
