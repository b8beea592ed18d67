"""Which heads of a model a rank computes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.engine.model.config import ModelConfig
from runtime.engine.model.errors import ModelError
from runtime.engine.ranks.shape import RankShape
from runtime.kv.reshard import ReshardError, heads_of


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadPart:
    """Query heads and the KV heads they look at; with fewer of these than ranks, neighbours hold the same."""

    queries: range
    keys: range


def head_part(config: ModelConfig, shape: RankShape) -> HeadPart:
    """The heads of one rank. Raises ModelError when they cannot be shared evenly."""
    size, rank = shape.attn_tp_size, shape.attn_tp_rank
    if config.num_heads % size:
        raise ModelError(f"{config.num_heads} query heads cannot be shared evenly by {size} attention ranks")
    try:
        keys = heads_of(rank, size, config.num_slot_heads)
    except ReshardError as error:
        raise ModelError(str(error)) from None
    num = config.num_heads // size
    return HeadPart(queries=range(rank * num, (rank + 1) * num), keys=keys)


def rows_of(heads: range, head_dim: int) -> range:
    """The rows of a projection, or columns of the one behind attention, that belong to the heads."""
    return range(heads.start * head_dim, heads.stop * head_dim)
