"""The engine loop alone: batching, chunks, pages, limits, aborts."""

from __future__ import annotations

import time

import pytest

from runtime.engine.request import FinishReason
from runtime.engine.settings import Mode


def test_tokens_follow_from_the_kv_in_the_pool(start_toy):
    toy = start_toy()
    prompt = range(1, 40)
    answer = toy.ask(prompt, max_new_tokens=12)
    assert answer.finish().reason is FinishReason.LENGTH
    assert answer.tokens == toy.expect(prompt, 12)
    toy.assert_empty()


@pytest.mark.parametrize("prompt_len", [1, 3, 4, 5, 15, 16, 17, 33])
def test_page_and_chunk_borders_change_nothing(start_toy, prompt_len):
    toy = start_toy()
    prompt = range(prompt_len)
    answer = toy.ask(prompt, max_new_tokens=9)
    answer.finish()
    assert answer.tokens == toy.expect(prompt, 9)


def test_a_new_request_joins_the_running_batch(start_toy):
    toy = start_toy()
    toy.runner.step_s = 0.005
    first = toy.ask([1, 2, 3], rid="first", max_new_tokens=60)
    assert first.started.wait(5)
    second = toy.ask([4, 5], rid="second", max_new_tokens=5)
    assert second.finish().reason is FinishReason.LENGTH
    assert not first.ended.is_set()
    assert second.tokens == toy.expect([4, 5], 5)
    first.finish()
    assert first.tokens == toy.expect([1, 2, 3], 60)
    assert 2 in toy.runner.batch_sizes


def test_a_decoding_request_gets_a_token_in_every_step_of_a_long_prompt(start_toy):
    toy = start_toy()
    toy.runner.step_s = 0.005
    talker = toy.ask([1, 2, 3], rid="talker", max_new_tokens=100)
    assert talker.started.wait(5)
    before = len(talker.events)
    toy.ask(range(150), rid="long", max_new_tokens=1).finish()  # ten chunks of 16
    assert len(talker.events) - before >= 9


def test_no_more_run_than_allowed_and_the_rest_waits_its_turn(start_toy):
    toy = start_toy(max_running_requests=2)
    answers = [toy.ask([n], rid=str(n), max_new_tokens=6) for n in range(7)]
    for n, answer in enumerate(answers):
        answer.finish()
        assert answer.tokens == toy.expect([n], 6)
    assert max(toy.runner.batch_sizes) == 2
    toy.assert_empty()


def test_requests_wait_for_pages_instead_of_failing(start_toy, toy_layout):
    toy = start_toy(layout=toy_layout(num_pages=10, page_size=4))
    answers = [toy.ask(range(n, n + 20), rid=str(n), max_new_tokens=8) for n in range(6)]
    for n, answer in enumerate(answers):
        assert answer.finish().reason is FinishReason.LENGTH
        assert answer.tokens == toy.expect(range(n, n + 20), 8)
    toy.assert_empty()


def test_when_the_pool_runs_dry_the_youngest_is_computed_again_and_says_the_same(start_toy, toy_layout):
    # 3 requests of 1 + 199 tokens start with 32 pages each; all of them grow to 50 pages of the 100.
    toy = start_toy(layout=toy_layout(num_pages=100, page_size=4))
    answers = [toy.ask([n], rid=str(n), max_new_tokens=199) for n in range(3)]
    for n, answer in enumerate(answers):
        assert answer.finish(30).reason is FinishReason.LENGTH
        assert answer.tokens == toy.expect([n], 199)
    assert toy.engine.stats().extra["num_retracted"] >= 1
    toy.assert_empty()


def test_an_answer_ends_where_the_context_ends(start_toy):
    toy = start_toy(context_len=32)
    answer = toy.ask(range(20), max_new_tokens=10_000)
    assert answer.finish().reason is FinishReason.LENGTH
    assert len(answer.tokens) == 12


def test_an_answer_ends_where_the_pool_ends(start_toy, toy_layout):
    toy = start_toy(layout=toy_layout(num_pages=5, page_size=4))
    answer = toy.ask(range(10), max_new_tokens=10_000)
    answer.finish()
    assert answer.tokens == toy.expect(range(10), 10)


def test_a_prompt_longer_than_the_context_is_the_callers_fault(start_toy):
    toy = start_toy(context_len=32)
    finish = toy.ask(range(32)).finish()
    assert (finish.reason, finish.status) == (FinishReason.ABORT, 400)
    assert finish.message == (
        "The input (32 tokens) is longer than the model's context length (32 tokens, the answer included)."
    )


def test_a_prompt_that_can_never_fit_the_pool_is_told_the_numbers(start_toy, toy_layout):
    toy = start_toy(layout=toy_layout(num_pages=5, page_size=4))
    finish = toy.ask(range(30)).finish()
    assert finish.status == 400
    assert finish.message is not None
    assert "Input length (30 tokens) exceeds the maximum allowed length (19 tokens)" in finish.message
    assert "5 pages of 4 tokens" in finish.message


@pytest.mark.parametrize(
    ("prompt", "max_new_tokens", "words"),
    [([], 5, "empty"), ([5, 99_999], 5, "99999"), ([-1], 5, "-1"), ([5], 0, "max_new_tokens")],
)
def test_what_cannot_be_computed_is_refused(start_toy, prompt, max_new_tokens, words):
    finish = start_toy().ask(prompt, max_new_tokens=max_new_tokens).finish()
    assert (finish.reason, finish.status) == (FinishReason.ABORT, 400)
    assert words in (finish.message or "")


def test_an_end_of_sequence_token_stops(start_toy, toy_layout, expected_tokens):
    third = expected_tokens([1, 2], 3, toy_layout())[2]
    toy = start_toy(eos_token_ids=frozenset({third}))
    answer = toy.ask([1, 2], max_new_tokens=50)
    finish = answer.finish()
    assert (finish.reason, finish.matched) == (FinishReason.STOP, third)
    assert answer.tokens[-1] == third
    assert len(answer.tokens) <= 3


def test_a_stop_token_of_the_request_stops(start_toy):
    toy = start_toy()
    wanted = toy.expect([1, 2], 4)[3]
    answer = toy.ask([1, 2], max_new_tokens=50, stop_token_ids=(wanted,))
    assert answer.finish().matched == wanted


def test_an_aborted_request_frees_its_pages_and_others_go_on(start_toy):
    toy = start_toy()
    toy.runner.step_s = 0.005
    doomed = toy.ask([1], rid="doomed", max_new_tokens=500)
    other = toy.ask([2], rid="other", max_new_tokens=40)
    assert doomed.started.wait(5)
    toy.engine.abort("doomed")
    finish = doomed.finish()
    assert finish.reason is FinishReason.ABORT
    assert other.finish().reason is FinishReason.LENGTH
    assert other.tokens == toy.expect([2], 40)
    toy.assert_empty()
    stats = toy.engine.stats()
    assert (stats.num_requests, stats.num_finished, stats.num_aborted) == (2, 1, 1)


def test_a_waiting_request_can_be_aborted(start_toy):
    toy = start_toy(max_running_requests=1)
    toy.runner.step_s = 0.01
    running = toy.ask([1], rid="running", max_new_tokens=50)
    waiting = toy.ask([2], rid="waiting")
    assert running.started.wait(5)
    toy.engine.abort("waiting")
    assert waiting.finish().reason is FinishReason.ABORT
    toy.engine.abort("running")
    toy.assert_empty()


def test_unknown_and_finished_ids_are_ignored(start_toy):
    toy = start_toy()
    toy.engine.abort("nobody")
    toy.ask([1], rid="one").finish()
    toy.engine.abort("one")
    assert toy.ask([1], rid="one").finish().reason is FinishReason.LENGTH


def test_a_request_id_in_use_is_refused(start_toy):
    toy = start_toy()
    toy.runner.step_s = 0.01
    toy.ask([1], rid="same", max_new_tokens=100)
    finish = toy.ask([1], rid="same").finish()
    assert (finish.status, finish.message) == (400, "the request id `same` is in use")


def test_a_failing_step_fails_its_requests_and_not_the_engine(start_toy):
    toy = start_toy()
    toy.runner.failure = RuntimeError("told to fail")
    finish = toy.ask([1], rid="bad").finish()
    assert finish.status == 500
    assert "told to fail" in (finish.message or "")
    toy.runner.failure = None
    assert toy.ask([1], rid="good").finish().reason is FinishReason.LENGTH
    toy.assert_empty()


def test_a_fault_in_the_loop_itself_ends_every_request_and_shows_in_the_heartbeat(start_toy):
    toy = start_toy(max_running_requests=1)
    toy.runner.failure = KeyError("a bug")
    answers = [toy.ask([1], rid=str(n)) for n in range(3)]
    for answer in (*answers, toy.ask([1], rid="late")):
        finish = answer.finish()
        assert (finish.status, finish.message) == (503, "the engine loop failed, see its log")
    before_s = toy.engine.heartbeat_age_s()
    time.sleep(0.25)
    assert toy.engine.heartbeat_age_s() >= before_s + 0.25


def test_logprobs_come_only_when_asked_for(start_toy):
    toy = start_toy()
    plain = toy.ask([1], rid="plain", max_new_tokens=2)
    asked = toy.ask([1], rid="asked", max_new_tokens=2, num_top_logprobs=2)
    plain.finish()
    asked.finish()
    assert [len(event.logprobs) for event in plain.events] == [0, 0]
    assert [one.token_id for event in asked.events for one in event.logprobs] == list(asked.tokens)


def test_an_idle_engine_sleeps_and_wakes_at_once(start_toy):
    toy = start_toy()
    toy.ask([1], rid="warm", max_new_tokens=1).finish()
    before_s = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before_s < 0.1
    waits_s = []
    for number in range(5):
        time.sleep(0.02)
        began_s = time.monotonic()
        toy.ask([1], rid=str(number), max_new_tokens=1).finish()
        waits_s.append(time.monotonic() - began_s)
    assert min(waits_s) < 0.02  # the pause between two looks is 0.1 s
    assert toy.engine.heartbeat_age_s() < 1.0


def test_a_closed_engine_ends_its_requests_and_refuses_new_ones(start_toy):
    toy = start_toy()
    toy.runner.step_s = 0.01
    running = toy.ask([1], rid="running", max_new_tokens=500)
    assert running.started.wait(5)
    toy.engine.close()
    assert running.finish().status == 503
    assert toy.ask([1], rid="late").finish().status == 503
    toy.engine.close()


@pytest.mark.parametrize("mode", [Mode.PREFILL, Mode.DECODE])
@pytest.mark.parametrize("at_host", [None, "2.2.2.2"])
def test_a_request_without_another_half_is_answered_alone(start_toy, meeting_at, mode, at_host):
    toy = start_toy(mode)
    at = None if at_host is None else meeting_at(at_host, 8998, 0)
    answer = toy.ask([1, 2, 3], max_new_tokens=1, at=at)
    assert answer.finish().reason is FinishReason.LENGTH
    assert answer.tokens == toy.expect([1, 2, 3], 1)
    toy.assert_empty()
