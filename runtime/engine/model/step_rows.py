"""Which rows of a step are whose: ranks see all tokens, each attends for those of its attention-DP rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from runtime.engine.compute import Chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRows:
    own_chunks: slice  # of the step's chunks
    own: slice  # of the step's tokens
    last: list[int]  # of each chunk, its last token
    own_last: list[int]  # likewise of the own chunks, counted among the own tokens

    @classmethod
    def of(cls, chunks: Sequence[Chunk], attn_dp_rank: int) -> StepRows:
        """`chunks`: those of one attention-DP rank are neighbours."""
        ends = list(accumulate(len(chunk.token_ids) for chunk in chunks))
        is_own = [chunk.attn_dp_rank == attn_dp_rank for chunk in chunks]
        first = is_own.index(True) if True in is_own else 0
        own_chunks = slice(first, first + sum(is_own))
        start = ends[first - 1] if first else 0
        own_ends = ends[own_chunks]
        return cls(
            own_chunks=own_chunks,
            own=slice(start, own_ends[-1] if own_ends else start),
            last=[end - 1 for end in ends],
            own_last=[end - 1 - start for end in own_ends],
        )
