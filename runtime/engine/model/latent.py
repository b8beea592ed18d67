"""Multi-head latent attention (MLA) of one rank: its weights, with those of keys and values absorbed.

A token leaves one row in the pool, whatever the number of heads: a normalised latent vector, and one rotated
key that all heads share. A head's keys and values are products of the latent vector; instead of computing
them for the whole context, its key matrix is applied to the query, and its value matrix to what attention
gives. So every head attends to the rows themselves: one KV head, whose values are the front part of its keys.

n tokens, H query heads of this rank, R latent rank, N plain, E rotary and V value elements of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.engine.model.config import ModelConfig
from runtime.engine.model.partition import HeadPart, rows_of
from runtime.engine.model.weight_reader import Part, Projection, WeightReader, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """`o` gives a part of a sum over the ranks of an attention group; its bias lies with one of them."""

    num_heads: int
    plain_dim: int
    rank: int
    scale: float  # of the scores: by a head's own size, not that of the rows
    query_down: Projection | None  # [query_rank, hidden]; None: queries come from the hidden state itself
    query_norm: Tensor | None  # [query_rank]
    query: Projection  # [H (N + E), query_rank or hidden]
    latent: Projection  # [R + E, hidden]
    latent_norm: Tensor  # [R]
    keys: Tensor  # [H, N, R]
    values: Tensor  # [H, R, V]
    o: Projection  # [hidden, H V]

    def absorb(self, queries: Tensor) -> Tensor:
        """Queries against rows of the pool, [n, H, R + E]. queries: [n, H, N + E], already rotated"""
        plain, rotated = queries[..., : self.plain_dim], queries[..., self.plain_dim :]
        against_latent = torch.bmm(plain.transpose(0, 1), self.keys).transpose(0, 1)
        return torch.cat((against_latent, rotated), dim=-1)

    def expand(self, attended: Tensor) -> Tensor:
        """Values of all heads, [n, H V]. attended: [n, H R]"""
        by_head = attended.view(len(attended), self.num_heads, self.rank)
        return torch.bmm(by_head.transpose(0, 1), self.values).transpose(0, 1).flatten(1)


def load_latent(
    reader: WeightReader, config: ModelConfig, heads: HeadPart, prefix: str, *, adds_bias: bool
) -> LatentAttention:
    """`adds_bias`: this rank's part of the sum is the one with `o`'s bias."""
    shape = config.latent
    assert shape is not None, "only models with latent attention come here"
    hidden, has_bias, num_heads = config.hidden_size, config.has_o_bias, len(heads.queries)
    query_rows = Part(
        f"{prefix}.{'q_proj' if shape.query_rank is None else 'q_b_proj'}",
        config.num_heads * shape.query_dim,
        rows_of(heads.queries, shape.query_dim),
    )
    query = reader.rows([query_rows], shape.query_rank or hidden, has_bias=False)
    latent = reader.rows(
        [whole(f"{prefix}.kv_a_proj_with_mqa", shape.rank + shape.rotary_dim)], hidden, has_bias=has_bias
    )
    if shape.is_interleaved:
        _part_pairs_(query.weight.unflatten(0, (num_heads, shape.query_dim))[:, shape.plain_dim :])
        _part_pairs_(latent.weight[None, shape.rank :])
        if latent.bias is not None:
            _part_pairs_(latent.bias[None, shape.rank :, None])
    head_rows = shape.plain_dim + shape.value_dim
    keys_values = reader.tensor(
        f"{prefix}.kv_b_proj.weight",
        (config.num_heads * head_rows, shape.rank),
        rows=rows_of(heads.queries, head_rows),
    ).view(num_heads, head_rows, shape.rank)
    return LatentAttention(
        num_heads=num_heads,
        plain_dim=shape.plain_dim,
        rank=shape.rank,
        scale=shape.query_dim**-0.5,
        query_down=None
        if shape.query_rank is None
        else reader.rows([whole(f"{prefix}.q_a_proj", shape.query_rank)], hidden, has_bias=has_bias),
        query_norm=None
        if shape.query_rank is None
        else reader.tensor(f"{prefix}.q_a_layernorm.weight", (shape.query_rank,)),
        query=query,
        latent=latent,
        latent_norm=reader.tensor(f"{prefix}.kv_a_layernorm.weight", (shape.rank,)),
        keys=keys_values[:, : shape.plain_dim].contiguous(),
        values=keys_values[:, shape.plain_dim :].transpose(1, 2).contiguous(),
        o=reader.columns(
            Part(
                f"{prefix}.o_proj",
                config.num_heads * shape.value_dim,
                rows_of(heads.queries, shape.value_dim),
            ),
            hidden,
            has_bias=has_bias and adds_bias,
        ),
    )


def _part_pairs_(rows: Tensor) -> None:
    """Bring rotary pairs from neighbours, as DeepSeek stores them, to half a head apart, as we rotate them.

    Queries and keys change alike, so their products stay. rows: [heads, E, ...], written
    """
    rows.copy_(torch.cat((rows[:, 0::2], rows[:, 1::2]), dim=1))
