"""How rotary frequencies are stretched to contexts longer than those of pre-training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runtime.engine.model.errors import ModelError

DEFAULT_THETA = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearScaling:
    """Every frequency divided by one factor."""

    factor: float

    def stretch(self, frequencies: Tensor) -> Tensor:
        return frequencies / self.factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """Long waves divided by the factor, short ones kept, those in between blended (Llama 3.1)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int

    def stretch(self, frequencies: Tensor) -> Tensor:
        wave_len = 2 * math.pi / frequencies
        # 0 for waves longer than the low bound (divide), 1 for those shorter than the high one (keep)
        kept = (self.original_max_position / wave_len - self.low_freq_factor) / (
            self.high_freq_factor - self.low_freq_factor
        )
        kept = kept.clamp(0.0, 1.0)
        return (1 - kept) * frequencies / self.factor + kept * frequencies


@dataclass(frozen=True, slots=True, kw_only=True)
class FrequencyFactors:
    """One divisor per frequency: the form in which a GGUF file carries the scaling of Llama 3."""

    factors: tuple[float, ...]  # [head_dim / 2]

    def stretch(self, frequencies: Tensor) -> Tensor:
        return frequencies / torch.tensor(self.factors, dtype=frequencies.dtype)


RopeScaling = LinearScaling | Llama3Scaling | FrequencyFactors


def read_rope(config: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """Give theta and scaling from `config.json`.

    transformers 5 writes both into `rope_parameters`; before, theta lay beside a `rope_scaling`, often null.
    """
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(parameters.get("rope_theta") or config.get("rope_theta") or DEFAULT_THETA)
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    try:
        return theta, _scaling(kind, parameters)
    except KeyError as error:
        raise ModelError(f"rope scaling `{kind}` lacks {error}") from None


def _scaling(kind: str, parameters: Mapping[str, Any]) -> RopeScaling | None:
    match kind:
        case "default":
            return None
        case "linear":
            return LinearScaling(factor=float(parameters["factor"]))
        case "llama3":
            return Llama3Scaling(
                factor=float(parameters["factor"]),
                low_freq_factor=float(parameters["low_freq_factor"]),
                high_freq_factor=float(parameters["high_freq_factor"]),
                original_max_position=int(parameters["original_max_position_embeddings"]),
            )
        case _:
            raise ModelError(
                f"rope scaling `{kind}` is unknown, the reference engine computes `linear`, `llama3`"
            )
