"""Rotary positions: cosine and sine of a step's tokens, computed once per step for all layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.engine.model.config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The angles of N tokens; `sin` has its first half negated, which saves a negation per layer."""

    cos: Tensor  # [N, 1, D]
    sin: Tensor  # [N, 1, D]

    def apply_(self, heads: Tensor) -> None:
        """Rotate each head by its token's position, in place: pairs are (i, i + D/2), Hugging Face's order.

        heads: [N, heads, D]
        """
        swapped = heads.roll(heads.shape[-1] // 2, dims=-1)
        heads.mul_(self.cos).addcmul_(swapped, self.sin)


class RotaryEmbedding:
    """Frequencies of one model. Angles are float32 whatever the weights' dtype, as in transformers."""

    def __init__(self, config: ModelConfig, *, device: torch.device, dtype: torch.dtype) -> None:
        exponents = torch.arange(0, config.rotary_dim, 2, dtype=torch.float32) / config.rotary_dim
        frequencies = 1.0 / config.rope_theta**exponents
        if config.rope_scaling is not None:
            frequencies = config.rope_scaling.stretch(frequencies)
        self._frequencies = frequencies.to(device)  # [D/2]
        self._dtype = dtype

    def at(self, positions: Tensor) -> Rotation:
        """Give the rotation of tokens at `positions`, [N] int64."""
        angles = positions.float()[:, None] * self._frequencies  # [N, D/2]
        cos, sin = angles.cos(), angles.sin()
        return Rotation(
            cos=torch.cat((cos, cos), dim=-1).to(self._dtype)[:, None],
            sin=torch.cat((-sin, sin), dim=-1).to(self._dtype)[:, None],
        )
