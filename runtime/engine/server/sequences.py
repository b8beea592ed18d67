"""Build what the engine is given from the parts that the routes have read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runtime.engine.request import GenerateInput, Rendezvous
from runtime.engine.server.assembly import TextAssembly
from runtime.engine.server.generation import SequenceProgress
from runtime.engine.server.sampling_fields import SamplingRequest
from runtime.engine.server.state import ServedModel, ServerState


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencePlan:
    """One sequence as the caller asked for it. `choice` counts the answers to the same prompt."""

    rid: str
    token_ids: tuple[int, ...]
    sampling: SamplingRequest
    rendezvous: Rendezvous | None
    num_top_logprobs: int | None
    routed_dp_rank: int | None = None
    choice: int = 0


def build_sequences(
    plans: Sequence[SequencePlan], *, state: ServerState, model: ServedModel
) -> tuple[SequenceProgress, ...]:
    return tuple(_build(plan, state.engine_rid(plan.rid), model) for plan in plans)


def _build(plan: SequencePlan, engine_rid: str, model: ServedModel) -> SequenceProgress:
    sampling = plan.sampling
    params = sampling.params
    if params.seed is not None and plan.choice:
        params = replace(params, seed=params.seed + plan.choice)  # or all choices would be the same
    codec = model.codec
    return SequenceProgress(
        public_rid=plan.rid,
        request=GenerateInput(
            rid=engine_rid,
            token_ids=plan.token_ids,
            sampling=params,
            rendezvous=plan.rendezvous,
            num_top_logprobs=plan.num_top_logprobs,
            routed_dp_rank=plan.routed_dp_rank,
        ),
        assembly=TextAssembly(
            decoder=codec.decoder(skip_special_tokens=sampling.skip_special_tokens) if codec else None,
            stop_strings=params.stop,
            keep_stop=sampling.keep_stop,
        ),
    )


def sequence_rids(request_id: str, num_sequences: int) -> tuple[str, ...]:
    """Names of the sequences of one request, the request's own when there is one sequence."""
    if num_sequences == 1:
        return (request_id,)
    return tuple(f"{request_id}_{index}" for index in range(num_sequences))
