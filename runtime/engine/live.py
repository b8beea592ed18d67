"""A request while it lives in the engine: what has been generated, what is computed, which pages it holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from runtime.engine.request import Finish, FinishReason, GenerateInput, Listener, TokenLogprob


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A drawn token, and its logprob if the request asked for it."""

    token_id: int
    logprob: TokenLogprob | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class LiveRequest:
    """Belongs to the engine thread. `pages` cover the first `len(pages) * page_size` of `token_ids`."""

    request: GenerateInput
    listener: Listener
    max_new_tokens: int  # the request's, cut to what the context and the pool allow
    token_ids: list[int] = field(default_factory=list)  # prompt and answer
    num_computed: int = 0  # leading tokens whose K/V is in the pages
    attn_dp_rank: int = 0  # whose pool the pages are of
    pages: tuple[int, ...] = ()
    num_holds: int = 0  # transfers that read or write the pages: they outlive the request until these end
    finish: Finish | None = None

    @property
    def rid(self) -> str:
        return self.request.rid

    @property
    def prompt_len(self) -> int:
        return len(self.request.token_ids)

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.prompt_len

    @property
    def num_uncomputed(self) -> int:
        return len(self.token_ids) - self.num_computed

    @property
    def is_in_prompt(self) -> bool:
        """Nothing has been generated yet."""
        return self.num_generated == 0


def finish_after(live: LiveRequest, eos_token_ids: frozenset[int]) -> Finish | None:
    """Whether the newest token ends the request, and why."""
    sampling = live.request.sampling
    token = live.token_ids[-1]
    if token in sampling.stop_token_ids or (token in eos_token_ids and not sampling.ignore_eos):
        return Finish(reason=FinishReason.STOP, matched=token)
    if live.num_generated >= live.max_new_tokens:
        return Finish(reason=FinishReason.LENGTH)
    return None


def abort(message: str, *, status: int) -> Finish:
    return Finish(reason=FinishReason.ABORT, message=message, status=status)
