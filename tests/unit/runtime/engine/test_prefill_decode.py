"""A prefill and a decode engine in one process, over real sockets, when all goes well."""

from __future__ import annotations

import pytest

from runtime.engine.request import FinishReason


def test_decode_continues_what_prefill_computed(start_pair):
    pair = start_pair()
    prompt = range(5, 60)
    ours, theirs = pair.ask(prompt, max_new_tokens=20)
    assert theirs.finish().reason is FinishReason.LENGTH
    assert theirs.tokens == pair.decode.expect(prompt, 20)
    assert ours.finish().reason is FinishReason.LENGTH
    assert ours.tokens == theirs.tokens[:1]
    pair.assert_empty()


@pytest.mark.parametrize("prompt_len", [1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 100])
def test_page_and_chunk_borders_lose_nothing(start_pair, prompt_len):
    pair = start_pair(verify_kv=True)
    _, theirs = pair.ask(range(prompt_len), max_new_tokens=6)
    theirs.finish()
    assert theirs.tokens == pair.decode.expect(range(prompt_len), 6)
    pair.assert_empty()


def test_many_requests_at_once_share_two_small_pools(start_pair, toy_layout):
    pair = start_pair(
        prefill_layout=toy_layout(num_pages=20), decode_layout=toy_layout(num_pages=40), verify_kv=True
    )
    prompts = [range(n, n + 3 + 7 * (n % 9)) for n in range(40)]
    answers = [pair.ask(prompt, max_new_tokens=1 + n % 13) for n, prompt in enumerate(prompts)]
    for n, (prompt, (ours, theirs)) in enumerate(zip(prompts, answers, strict=True)):
        assert theirs.finish(30).reason is FinishReason.LENGTH
        assert theirs.tokens == pair.decode.expect(prompt, 1 + n % 13)
        assert ours.finish().reason is FinishReason.LENGTH
    pair.assert_empty()


def test_the_transfer_begins_before_the_prompt_is_computed(start_pair):
    pair = start_pair(chunked_prefill_size=8)
    pair.prefill.runner.step_s = 0.05
    _, theirs = pair.ask(range(100), max_new_tokens=1)
    pair.prefill.wait_until(lambda: pair.prefill.engine.stats().transfer_bytes > 0)
    assert pair.prefill.runner.num_steps < 13
    assert pair.decode.engine.stats().num_transferring == 1
    theirs.finish()
    layout = pair.prefill.model.layout
    num_bytes = layout.num_pages_for(100) * layout.token_bytes * 4
    for toy in (pair.prefill, pair.decode):
        assert toy.engine.stats().transfer_bytes == num_bytes


def test_a_first_token_that_ends_the_answer_ends_it_on_decode(start_pair):
    pair = start_pair()
    first = pair.decode.expect([1, 2, 3], 1)[0]
    _, theirs = pair.ask([1, 2, 3], max_new_tokens=50, stop_token_ids=(first,))
    finish = theirs.finish()
    assert (finish.reason, finish.matched, theirs.tokens) == (FinishReason.STOP, first, (first,))
    pair.assert_empty()


def test_the_first_tokens_logprob_travels_with_it(start_pair):
    pair = start_pair()
    _, theirs = pair.ask([1, 2, 3], max_new_tokens=2, num_top_logprobs=2)
    theirs.finish()
    first = theirs.events[0].logprobs[0]
    assert first.token_id == theirs.tokens[0]
    assert first.logprob == -0.5
    assert first.top == ((theirs.tokens[0], -0.5), (1, -2.0))


@pytest.mark.parametrize("first", ["prefill", "decode"])
def test_either_half_may_come_first(start_pair, first):
    pair = start_pair()
    at = pair.meeting()
    one, two = (pair.prefill, pair.decode) if first == "prefill" else (pair.decode, pair.prefill)
    one.ask([1, 2, 3], at=at)
    one.wait_until(lambda: one.engine.stats().num_handshaking == 1)
    if first == "decode":
        pair.prefill.wait_until(lambda: pair.prefill.engine.stats().num_handshaking == 1)
    two.ask([1, 2, 3], at=at)
    pair.assert_empty()
    assert pair.decode.engine.stats().num_finished == 1


def test_a_room_id_can_be_used_again(start_pair):
    pair = start_pair()
    for n in range(3):
        at = pair.meeting(7)
        ours = pair.prefill.ask([n, 2], rid=f"p{n}", at=at)
        theirs = pair.decode.ask([n, 2], rid=f"d{n}", at=at)
        assert theirs.finish().reason is FinishReason.LENGTH
        assert ours.finish().reason is FinishReason.LENGTH
        assert theirs.tokens == pair.decode.expect([n, 2], 8)
    pair.assert_empty()


def test_one_decode_engine_serves_several_prefill_engines_and_the_reverse(start_toy, start_pair):
    from runtime.engine.settings import Mode

    pair = start_pair()
    second = type(pair)(start_toy(Mode.PREFILL), pair.decode, 5000)
    third = type(pair)(pair.prefill, start_toy(Mode.DECODE), 9000)
    answers = [each.ask(range(n, n + 20)) for n in range(4) for each in (pair, second, third)]
    assert all(theirs.finish().reason is FinishReason.LENGTH for _, theirs in answers)
    assert pair.decode.engine.stats().extra["num_links"] == 2
    assert pair.prefill.engine.stats().extra["num_links"] == 2


def test_a_retracted_request_is_recomputed_by_decode_itself(start_pair, toy_layout):
    pair = start_pair(decode_layout=toy_layout(num_pages=100))
    answers = [pair.ask([n], max_new_tokens=199) for n in range(3)]
    for n, (_, theirs) in enumerate(answers):
        assert theirs.finish(30).reason is FinishReason.LENGTH
        assert theirs.tokens == pair.decode.expect([n], 199)
    assert pair.decode.engine.stats().extra["num_retracted"] >= 1
    pair.assert_empty()


def test_requests_that_arrived_give_way_to_the_one_that_runs(start_pair, toy_layout):
    """One place in the batch, and the pool full of K/V that waits for it: the runner must not starve."""
    pair = start_pair(
        decode_layout=toy_layout(num_pages=64),
        prefill_layout=toy_layout(num_pages=64),
        max_running_requests=1,
    )
    pair.decode.runner.step_s = 0.002
    runner = pair.ask([1], max_new_tokens=200)[1]  # grows from 32 pages to 50
    waiters = [pair.ask(range(n, n + 55), max_new_tokens=5)[1] for n in range(6)]
    assert runner.finish(20).reason is FinishReason.LENGTH
    assert runner.tokens == pair.decode.expect([1], 200)
    for n, waiter in enumerate(waiters):
        waiter.finish(20)
        assert waiter.tokens == pair.decode.expect(range(n, n + 55), 5)
    assert pair.decode.engine.stats().extra["num_retracted"] >= 1
    pair.assert_empty()
