"""A prefill and a decode engine in one process, over real sockets."""

from __future__ import annotations

from runtime.engine.request import FinishReason


def test_decode_continues_what_prefill_computed(start_pair):
    pair = start_pair()
    prompt = list(range(5, 60))
    ours, theirs = pair.ask(prompt, max_new_tokens=20)
    assert theirs.finish().reason is FinishReason.LENGTH
    assert theirs.tokens == pair.decode.expect(prompt, 20)
    assert ours.finish().reason is FinishReason.LENGTH
    assert ours.tokens == theirs.tokens[:1]
    pair.assert_empty()
