"""Which part of the model a rank holds. Pure arithmetic.

Ranks are numbered as in SGLang: attention tensor parallelism inside attention data parallelism, so ranks
that share the heads of one KV pool are neighbours. Outside attention all ranks of the engine work on all
tokens: the columns of dense layers are spread over them, and experts, of which each rank has `1 / ep_size`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShape:
    """One rank among the ranks of its engine. `attn_dp_size` and `ep_size` divide `tp_size`."""

    tp_size: int = 1
    tp_rank: int = 0
    attn_dp_size: int = 1
    ep_size: int = 1

    @property
    def is_leader(self) -> bool:
        return self.tp_rank == 0

    @property
    def attn_tp_size(self) -> int:
        return self.tp_size // self.attn_dp_size

    @property
    def attn_tp_rank(self) -> int:
        return self.tp_rank % self.attn_tp_size

    @property
    def attn_dp_rank(self) -> int:
        return self.tp_rank // self.attn_tp_size

    def at(self, tp_rank: int) -> RankShape:
        """The shape of another rank of the same engine."""
        return replace(self, tp_rank=tp_rank)

    def columns(self, total: int) -> range:
        """This rank's part of `total` columns that all ranks share; parts may differ by one in length."""
        return part(total, self.tp_rank, self.tp_size)

    def experts(self, total: int) -> range:
        return part(total, self.tp_rank // self._moe_tp_size, self.ep_size)

    def expert_columns(self, total: int) -> range:
        """This rank's part of the columns inside each of its experts."""
        return part(total, self.tp_rank % self._moe_tp_size, self._moe_tp_size)

    @property
    def _moe_tp_size(self) -> int:
        return self.tp_size // self.ep_size


def part(total: int, index: int, num_parts: int) -> range:
    """The part number `index` of `total` things that are cut as evenly as can be."""
    return range(total * index // num_parts, total * (index + 1) // num_parts)
