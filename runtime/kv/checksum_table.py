"""From the checksums of ranks, who hold different heads, to those of the whole model, and back. Pure.

The table is in the order that travels: by layer, then by the model's KV heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.kv.reshard import heads_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Where the KV of a rank is not what was sent."""

    layer: int
    head: int  # of the model


def join_ranks(by_rank: Sequence[Sequence[int]], num_kv_heads: int) -> tuple[int, ...]:
    """The model's table. `by_rank`: per rank of one attention group, by layer and own head."""
    num_local = len(heads_of(0, len(by_rank), num_kv_heads))
    num_layers = len(by_rank[0]) // num_local
    holder = {
        head: rank for rank in reversed(range(len(by_rank))) for head in _heads(rank, by_rank, num_kv_heads)
    }
    return tuple(
        by_rank[holder[head]][layer * num_local + head % num_local]
        for layer in range(num_layers)
        for head in range(num_kv_heads)
    )


def find_damage(by_rank: Sequence[Sequence[int]], table: Sequence[int], num_kv_heads: int) -> Damage | None:
    """The first head of any rank whose checksum is not the table's; a missing one differs."""
    for rank, ours in enumerate(by_rank):
        heads = _heads(rank, by_rank, num_kv_heads)
        for place, checksum in enumerate(ours):
            layer, head = place // len(heads), heads[place % len(heads)]
            expected = layer * num_kv_heads + head
            if expected >= len(table) or table[expected] != checksum:
                return Damage(layer=layer, head=head)
    num_ours = len(by_rank[0]) // len(_heads(0, by_rank, num_kv_heads)) * num_kv_heads
    return Damage(layer=num_ours // num_kv_heads, head=0) if len(table) > num_ours else None


def _heads(rank: int, by_rank: Sequence[Sequence[int]], num_kv_heads: int) -> range:
    return heads_of(rank, len(by_rank), num_kv_heads)
