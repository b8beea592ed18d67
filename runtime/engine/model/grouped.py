"""Grouped-query attention of one rank: its weights, and queries, keys and values of a step.

n tokens, H query heads and G KV heads of this rank, D head_dim.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from runtime.engine.model.config import ModelConfig
from runtime.engine.model.partition import HeadPart, rows_of
from runtime.engine.model.weight_reader import Part, Projection, WeightReader


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedAttention:
    """`o` gives a part of a sum over the ranks of an attention group; its bias lies with one of them."""

    heads: HeadPart
    head_dim: int
    qkv: Projection  # [(H + 2 G) D, hidden]: queries, then keys, then values
    q_norm: Tensor | None  # [D]
    k_norm: Tensor | None  # [D]
    o: Projection  # [hidden, H D]

    def split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Views of queries, keys, and of keys with values as [n, 2, G, D]. qkv: [n, (H + 2 G) D]"""
        num_queries, num_keys = len(self.heads.queries), len(self.heads.keys)
        by_head = qkv.view(len(qkv), num_queries + 2 * num_keys, self.head_dim)
        queries, keys = by_head[:, :num_queries], by_head[:, num_queries : num_queries + num_keys]
        return queries, keys, by_head[:, num_queries:].unflatten(1, (2, num_keys))

    def rotated(self, qkv: Tensor) -> Tensor:
        """A view of what carries positions, queries and keys: [n, H + G, D]."""
        num_rotated = len(self.heads.queries) + len(self.heads.keys)
        return qkv.view(len(qkv), num_rotated + len(self.heads.keys), self.head_dim)[:, :num_rotated]


def load_grouped(
    reader: WeightReader, config: ModelConfig, heads: HeadPart, prefix: str, *, adds_bias: bool
) -> GroupedAttention:
    """`adds_bias`: this rank's part of the sum is the one with `o`'s bias."""
    head_dim = config.head_dim
    queries, keys = rows_of(heads.queries, head_dim), rows_of(heads.keys, head_dim)
    num_query_rows, num_key_rows = config.num_heads * head_dim, config.num_kv_heads * head_dim
    qkv = (
        Part(f"{prefix}.q_proj", num_query_rows, queries),
        Part(f"{prefix}.k_proj", num_key_rows, keys),
        Part(f"{prefix}.v_proj", num_key_rows, keys),
    )

    def head_norm(name: str) -> Tensor | None:
        return reader.tensor(f"{prefix}.{name}.weight", (head_dim,)) if config.has_qk_norm else None

    return GroupedAttention(
        heads=heads,
        head_dim=head_dim,
        qkv=reader.rows(qkv, config.hidden_size, has_bias=config.has_qkv_bias),
        q_norm=head_norm("q_norm"),
        k_norm=head_norm("k_norm"),
        o=reader.columns(
            Part(f"{prefix}.o_proj", num_query_rows, queries),
            config.hidden_size,
            has_bias=config.has_o_bias and adds_bias,
        ),
    )
