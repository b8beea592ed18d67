"""Which tokens the next step computes. Pure.

One step mixes both kinds of work: every sequence that decodes gives its one token, so that nobody's answer
stalls behind a long prompt, and prompts get what is left of the chunk budget in the order of their arrival.
"""

from __future__ import annotations

from collections.abc import Iterable

from runtime.engine.live import LiveRequest


def plan_step(running: Iterable[LiveRequest], *, chunk_budget: int) -> list[tuple[LiveRequest, int]]:
    """Pairs of a request and how many of its tokens to compute, at most `chunk_budget` from prompts."""
    plan: list[tuple[LiveRequest, int]] = []
    for live in running:
        if live.num_uncomputed == 1 and not live.is_in_prompt:
            plan.append((live, 1))
        elif chunk_budget:
            num_tokens = min(live.num_uncomputed, chunk_budget)
            chunk_budget -= num_tokens
            plan.append((live, num_tokens))
    return plan
