"""Mixture of experts: who computes which token, and one rank's experts for the tokens that chose them.

All ranks see all N tokens and route them alike, from the same bits. Each computes what its experts, or its
columns of them, add to a token; the sum over ranks that ends a layer puts that together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from runtime.engine.model.config import ModelConfig
from runtime.engine.model.deepseek import ExpertShape, Routing
from runtime.engine.model.weight_reader import Part, Projection, WeightReader
from runtime.engine.ranks.shape import RankShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Expert:
    """A rank's columns of one expert, I of them."""

    gate_up: Projection  # [2 I, hidden]: gate, then up
    down: Projection  # [hidden, I]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """One layer's. `own` are those of this rank, by their number in the model."""

    shape: ExpertShape
    router: Tensor  # [num_experts, hidden] float32
    router_bias: Tensor | None  # [num_experts] float32, counts for the choice alone
    own: dict[int, Expert]
    shared: Expert  # all shared ones side by side

    def route(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Each token's experts and their weights, [N, num_chosen] int64 and float32. hidden: [N, hidden]"""
        shape = self.shape
        logits = F.linear(hidden.float(), self.router)
        scores = logits.sigmoid() if shape.routing is Routing.BIASED else logits.softmax(dim=-1)
        preferences = scores if self.router_bias is None else scores + self.router_bias
        if shape.routing is not Routing.GREEDY:
            preferences = _within_best_groups(preferences, shape)
        chosen = preferences.topk(shape.num_chosen, dim=-1).indices
        weights = scores.gather(1, chosen)
        if shape.is_normalized:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        return chosen, weights * shape.scale


def load_experts(reader: WeightReader, config: ModelConfig, shape: RankShape, prefix: str) -> Experts:
    experts = config.experts
    assert experts is not None, "only layers with experts come here"
    router_shape = (experts.num_experts, config.hidden_size)
    bias_name = f"{prefix}.gate.e_score_correction_bias"
    is_biased = experts.routing is Routing.BIASED

    def load(name: str, total: int, kept: range) -> Expert:
        gate, up, down = (
            Part(f"{prefix}.{name}.{part}_proj", total, kept) for part in ("gate", "up", "down")
        )
        return Expert(
            gate_up=reader.rows((gate, up), config.hidden_size, has_bias=False),
            down=reader.columns(down, config.hidden_size, has_bias=False),
        )

    size, shared_size = experts.intermediate_size, experts.num_shared * experts.intermediate_size
    return Experts(
        shape=experts,
        router=reader.exact(f"{prefix}.gate.weight", router_shape),
        router_bias=reader.exact(bias_name, (experts.num_experts,)) if is_biased else None,
        own={
            number: load(f"experts.{number}", size, shape.expert_columns(size))
            for number in shape.experts(experts.num_experts)
        },
        shared=load("shared_experts", shared_size, shape.columns(shared_size)),
    )


def _within_best_groups(preferences: Tensor, shape: ExpertShape) -> Tensor:
    """Leave out all but the best groups: by their best expert, or where biased by their best two."""
    by_group = preferences.view(len(preferences), shape.num_groups, -1)
    num_looked_at = 2 if shape.routing is Routing.BIASED else 1
    group_scores = by_group.topk(num_looked_at, dim=-1).values.sum(dim=-1)
    best = group_scores.topk(shape.num_chosen_groups, dim=-1).indices
    is_left_out = torch.ones_like(group_scores, dtype=torch.bool).scatter_(1, best, False)
    nothing = float("-inf") if shape.routing is Routing.BIASED else 0.0
    return by_group.masked_fill(is_left_out[..., None], nothing).flatten(1)
