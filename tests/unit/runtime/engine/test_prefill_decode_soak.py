"""Hundreds of requests between two engines, with aborts at random moments: nothing stays behind."""

from __future__ import annotations

import random
import threading
import time

from runtime.engine.request import FinishReason

_NUM_REQUESTS = 400


def test_random_aborts_on_both_sides_leave_nothing_and_break_no_answer(start_pair, toy_layout):
    pair = start_pair(
        prefill_layout=toy_layout(num_pages=40), decode_layout=toy_layout(num_pages=50), verify_kv=True
    )
    chance = random.Random(11)
    asked = []
    for number in range(_NUM_REQUESTS):
        prompt = range(number, number + chance.randint(1, 60))
        num_tokens = chance.randint(1, 30)
        asked.append((prompt, num_tokens, *pair.ask(prompt, max_new_tokens=num_tokens)))
        victim = chance.choice([None, None, pair.prefill, pair.decode])
        if victim is not None:
            rid = f"room-{1000 + number - chance.randint(0, 5)}"
            threading.Timer(chance.uniform(0, 0.05), victim.engine.abort, (rid,)).start()
        if chance.random() < 0.3:
            time.sleep(chance.uniform(0, 0.01))
    outcomes = [_check(pair, *one) for one in asked]
    pair.assert_empty()
    assert outcomes.count(FinishReason.LENGTH) > _NUM_REQUESTS // 4
    assert outcomes.count(FinishReason.ABORT) > _NUM_REQUESTS // 20
    assert pair.decode.engine.stats().extra["num_links"] == 1


def _check(pair, prompt, num_tokens, ours, theirs) -> FinishReason:
    """Both halves end, with the right words or with the reason of the other's abort."""
    finish, other = theirs.finish(30), ours.finish(30)
    wanted = pair.decode.expect(prompt, num_tokens)
    assert theirs.tokens == wanted[: len(theirs.tokens)]
    if finish.reason is FinishReason.LENGTH:
        assert len(theirs.tokens) == num_tokens
        assert other.reason is FinishReason.LENGTH
    else:
        assert "aborted" in (finish.message or "")
    return finish.reason
