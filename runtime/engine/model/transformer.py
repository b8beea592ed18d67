"""The forward pass of one rank: embedding, decoder layers, logits.

N tokens of this step over all sequences, H query heads and G KV heads of this rank, D head_dim. Sequences are
apart only in attention; all else runs over all N tokens at once, which is what makes batching worth it.

Every rank has the hidden state of all N tokens. It attends with its heads for the n tokens of its own
attention-DP rank, and computes its columns of the MLP for all; what ranks add to the hidden state is summed
over all of them twice per layer. Rows that another attention-DP rank computes are zeros in this one's
summand, so that the same sum also brings all tokens together.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from runtime.engine.compute import Chunk
from runtime.engine.model.attention import StepAttention
from runtime.engine.model.config import ModelConfig
from runtime.engine.model.experts import Experts
from runtime.engine.model.grouped import GroupedAttention
from runtime.engine.model.latent import LatentAttention
from runtime.engine.model.projection import Projector
from runtime.engine.model.rotary import RotaryEmbedding, Rotation
from runtime.engine.model.step_rows import StepRows
from runtime.engine.model.weight_reader import Projection
from runtime.engine.model.weights import Dense, ModelWeights
from runtime.engine.ranks.comm import Comm
from runtime.engine.ranks.shape import RankShape
from runtime.kv.pool import KVPool


class Transformer:
    """Stateless but for the pool it writes; one step at a time, on all ranks together."""

    def __init__(
        self, config: ModelConfig, weights: ModelWeights, pool: KVPool, *, shape: RankShape, comm: Comm
    ) -> None:
        self._shape = shape
        self._comm = comm
        self._head_widths = [len(shape.at(rank).columns(config.vocab_size)) for rank in range(shape.tp_size)]
        self._weights = weights
        self._pool = pool
        dtype = weights.embedding.dtype
        self._project = Projector(device=pool.device, dtype=dtype)
        self._eps = torch.tensor(config.rms_norm_eps, device=pool.device)
        self._rotary = RotaryEmbedding(config, device=pool.device, dtype=dtype)
        self._planes = tuple(pool.tensor)  # per layer [2, P, S, G, D]

    def step(self, chunks: Sequence[Chunk]) -> Tensor:
        """Compute all chunks; float32 logits of each one's last token, on the leader [len(chunks), vocab]."""
        rows = StepRows.of(chunks, self._shape.attn_dp_rank)
        own = chunks[rows.own_chunks]
        rotation = self._rotary.at(self._int64([pos for chunk in own for pos in _positions(chunk)]))
        attention = StepAttention(own, self._pool)
        token_ids = self._int64([token_id for chunk in chunks for token_id in chunk.token_ids])
        hidden = F.embedding(token_ids, self._weights.embedding)  # [N, hidden]
        for layer, plane in zip(self._weights.layers, self._planes, strict=True):
            normed = self._norm(hidden[rows.own], layer.attention_norm)
            attended = self._attend(layer.attention, normed, rotation, attention, plane)  # [n, H D]
            own_rows = rows.own
            if layer is self._weights.layers[-1]:  # nothing reads the other rows any more
                attended, hidden = attended[self._int64(rows.own_last)], hidden[self._int64(rows.last)]
                own_rows = rows.own_chunks
            hidden = hidden + self._sum(self._project(attended, layer.attention.o), own_rows, len(hidden))
            hidden = hidden + self._comm.sum_(self._mlp(layer.mlp, self._norm(hidden, layer.mlp_norm)))
        logits = self._project(self._norm(hidden, self._weights.final_norm), self._weights.head).float()
        return self._comm.join_columns(logits, self._head_widths)

    def _sum(self, own: Tensor, rows: slice, num_rows: int) -> Tensor:
        """The sum over all ranks, [num_rows, hidden], of what each has for some rows. own: [n, hidden]"""
        if len(own) == num_rows:
            return self._comm.sum_(own)
        summand = own.new_zeros(num_rows, own.shape[1])
        summand[rows] = own
        return self._comm.sum_(summand)

    def _mlp(self, mlp: Dense | Experts, normed: Tensor) -> Tensor:
        """This rank's summand for all tokens, [N, hidden]."""
        if isinstance(mlp, Dense):
            return self._gated(normed, mlp.gate_up, mlp.down)
        chosen, weights = mlp.route(normed)
        out = self._gated(normed, mlp.shared.gate_up, mlp.shared.down)
        for number in chosen.unique().tolist():
            expert = mlp.own.get(number)
            if expert is not None:
                rows, places = (chosen == number).nonzero(as_tuple=True)
                added = self._gated(normed[rows], expert.gate_up, expert.down) * weights[rows, places, None]
                out.index_add_(0, rows, added.to(out.dtype))
        return out

    def _gated(self, rows: Tensor, gate_up: Projection, down: Projection) -> Tensor:
        gate, up = self._project(rows, gate_up).chunk(2, dim=-1)
        return self._project(F.silu(gate).mul_(up), down)

    def _attend(
        self,
        layer: GroupedAttention | LatentAttention,
        normed: Tensor,
        rotation: Rotation,
        attention: StepAttention,
        plane: Tensor,
    ) -> Tensor:
        """What this rank's heads give for its own tokens, [n, H D]. normed: [n, hidden]; plane is written"""
        if isinstance(layer, LatentAttention):
            return self._attend_to_rows(layer, normed, rotation, attention, plane)
        qkv = self._project(normed, layer.qkv)
        queries, keys, keys_values = layer.split(qkv)
        if layer.q_norm is not None and layer.k_norm is not None:
            queries.copy_(self._norm(queries, layer.q_norm))
            keys.copy_(self._norm(keys, layer.k_norm))
        rotation.apply_(layer.rotated(qkv))
        return attention.attend(queries, keys_values, plane)

    def _attend_to_rows(
        self,
        layer: LatentAttention,
        normed: Tensor,
        rotation: Rotation,
        attention: StepAttention,
        plane: Tensor,
    ) -> Tensor:
        """The same with latent rows in the place of keys and values; all heads look at one row per token."""
        source = normed
        if layer.query_down is not None and layer.query_norm is not None:
            source = self._norm(self._project(normed, layer.query_down), layer.query_norm)
        queries = self._project(source, layer.query).unflatten(1, (layer.num_heads, -1))
        rotation.apply_(queries[..., layer.plain_dim :])
        rows = self._project(normed, layer.latent)  # [n, R + E]
        rows[:, : layer.rank] = self._norm(rows[:, : layer.rank], layer.latent_norm)
        rotation.apply_(rows[:, None, layer.rank :])
        attended = attention.attend(
            layer.absorb(queries), rows[:, None, None], plane, scale=layer.scale, value_dim=layer.rank
        )
        return layer.expand(attended)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm over the last dimension, computed in float32: five operations where torch's own has ten."""
        norm = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True, dtype=torch.float32)
        scale = torch.addcmul(self._eps, norm, norm, value=1 / hidden.shape[-1]).rsqrt_()
        return (hidden * scale).mul_(weight).to(hidden.dtype)

    def _int64(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._pool.device)


def _positions(chunk: Chunk) -> range:
    return range(chunk.start_pos, chunk.start_pos + len(chunk.token_ids))
