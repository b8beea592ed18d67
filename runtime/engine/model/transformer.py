"""The forward pass: embedding, decoder layers, logits.

N tokens of this step over all sequences, H query heads, G KV heads, D head_dim. Sequences are apart only in
attention; everything else runs over all N tokens at once, which is what makes batching worth it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from runtime.engine.compute import Chunk
from runtime.engine.model.attention import StepAttention
from runtime.engine.model.config import ModelConfig
from runtime.engine.model.projection import Projector
from runtime.engine.model.rotary import RotaryEmbedding, Rotation
from runtime.engine.model.weights import LayerWeights, ModelWeights
from runtime.kv.pool import KVPool


class Transformer:
    """Stateless but for the pool it writes; one step at a time."""

    def __init__(self, config: ModelConfig, weights: ModelWeights, pool: KVPool) -> None:
        self._config = config
        self._weights = weights
        self._pool = pool
        dtype = weights.embedding.dtype
        self._project = Projector(device=pool.device, dtype=dtype)
        self._eps = torch.tensor(config.rms_norm_eps, device=pool.device)
        self._rotary = RotaryEmbedding(config, device=pool.device, dtype=dtype)
        self._planes = tuple(pool.tensor)  # per layer [2, P, S, G, D]

    def step(self, chunks: Sequence[Chunk]) -> Tensor:
        """Compute all chunks; float32 logits of each chunk's last token, [len(chunks), vocab]."""
        token_ids = self._int64([token_id for chunk in chunks for token_id in chunk.token_ids])
        positions = self._int64([pos for chunk in chunks for pos in _positions(chunk)])
        rotation = self._rotary.at(positions)
        attention = StepAttention(chunks, self._pool)
        last_rows = self._int64(_last_rows(chunks))
        hidden = F.embedding(token_ids, self._weights.embedding)  # [N, hidden]
        for layer, plane in zip(self._weights.layers, self._planes, strict=True):
            is_last = layer is self._weights.layers[-1]
            hidden = self._layer(layer, hidden, rotation, attention, plane, last_rows if is_last else None)
        return self._project(self._norm(hidden, self._weights.final_norm), self._weights.head).float()

    def _layer(
        self,
        layer: LayerWeights,
        hidden: Tensor,
        rotation: Rotation,
        attention: StepAttention,
        plane: Tensor,
        kept_rows: Tensor | None,
    ) -> Tensor:
        """One decoder layer, [N, hidden] to the same; of `kept_rows` alone where nothing reads the others."""
        queries, keys_values = self._qkv(layer, self._norm(hidden, layer.attention_norm), rotation)
        attended = attention.attend(queries, keys_values, plane)
        if kept_rows is not None:
            attended, hidden = attended[kept_rows], hidden[kept_rows]
        hidden = hidden + self._project(attended, layer.o)
        gate, up = self._project(self._norm(hidden, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
        return hidden + self._project(F.silu(gate).mul_(up), layer.down)

    def _qkv(self, layer: LayerWeights, normed: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Queries [N, H, D], and keys and values [N, 2, G, D]; queries and keys are rotated."""
        num_heads, num_kv_heads = self._config.num_heads, self._config.num_kv_heads
        qkv = self._project(normed, layer.qkv).view(len(normed), -1, self._config.head_dim)  # [N, H + 2 G, D]
        queries, keys = qkv[:, :num_heads], qkv[:, num_heads : num_heads + num_kv_heads]
        if layer.q_norm is not None and layer.k_norm is not None:
            queries.copy_(self._norm(queries, layer.q_norm))
            keys.copy_(self._norm(keys, layer.k_norm))
        rotation.apply_(qkv[:, : num_heads + num_kv_heads])
        return queries, qkv[:, num_heads:].unflatten(1, (2, num_kv_heads))

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm over the last dimension, computed in float32: five operations where torch's own has ten."""
        norm = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True, dtype=torch.float32)
        scale = torch.addcmul(self._eps, norm, norm, value=1 / hidden.shape[-1]).rsqrt_()
        return (hidden * scale).mul_(weight).to(hidden.dtype)

    def _int64(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._pool.device)


def _positions(chunk: Chunk) -> range:
    return range(chunk.start_pos, chunk.start_pos + len(chunk.token_ids))


def _last_rows(chunks: Sequence[Chunk]) -> list[int]:
    rows: list[int] = []
    end = 0
    for chunk in chunks:
        end += len(chunk.token_ids)
        rows.append(end - 1)
    return rows
