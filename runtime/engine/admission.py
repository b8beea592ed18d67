"""Whether a request can be served at all, and how long its answer may get. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.engine.compute import Model
from runtime.engine.live import abort
from runtime.engine.request import Finish, GenerateInput


def choose_lane(request: GenerateInput, num_lives: Sequence[int], *, by_room: bool) -> int:
    """The attention-DP rank that a request belongs to; `num_lives`: how many each has already.

    The caller's wish comes first. SGLang fails a prefill request whose wish and room disagree, as its decode
    side looks for the rank that follows from the room; ours asks the leader, which knows.
    Without a wish a prefill engine takes the one that follows from the room (`follow_bootstrap_room`).
    Everywhere else it is the one with the fewest requests.
    """
    if request.routed_dp_rank is not None:
        return request.routed_dp_rank
    if by_room and request.rendezvous is not None:
        return request.rendezvous.room % len(num_lives)
    return min(range(len(num_lives)), key=num_lives.__getitem__)


def refusal(request: GenerateInput, model: Model) -> Finish | None:
    """Why this engine can never serve the request: the caller's fault, so routers must not retry it."""
    prompt_len = len(request.token_ids)
    if prompt_len == 0:
        return abort("The input is empty.", status=400)
    if prompt_len >= model.context_len:
        return abort(
            f"The input ({prompt_len} tokens) is longer than the model's context length "
            f"({model.context_len} tokens, the answer included).",
            status=400,
        )
    if prompt_len >= model.num_pool_tokens:
        return abort(
            f"Input length ({prompt_len} tokens) exceeds the maximum allowed length "
            f"({model.num_pool_tokens - 1} tokens): the KV pool has {model.layout.num_pages} pages of "
            f"{model.layout.page_size} tokens. Use a shorter input or a larger --max-total-tokens.",
            status=400,
        )
    stranger = next((token for token in request.token_ids if not 0 <= token < model.vocab_size), None)
    if stranger is not None:
        return abort(f"The token id {stranger} is not in the vocabulary of {model.vocab_size}.", status=400)
    if request.sampling.max_new_tokens < 1:
        found = request.sampling.max_new_tokens
        return abort(f"max_new_tokens must be at least 1, found {found}.", status=400)
    return None


def max_answer_len(request: GenerateInput, model: Model) -> int:
    """The request's own limit, cut to what the context and the pool have room for."""
    room = min(model.context_len, model.num_pool_tokens) - len(request.token_ids)
    return min(request.sampling.max_new_tokens, room)
