"""What a DeepSeek-V2 or -V3 `config.json` says beyond other models: latent attention, and experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from runtime.engine.model.errors import ModelError
from runtime.engine.model.json_file import read_count


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentShape:
    """Multi-head latent attention (MLA): all heads' keys and values come from one vector per token."""

    rank: int  # elements of that vector, beside `rotary_dim` that carry the position
    query_rank: int | None  # of the queries' own bottleneck; None: there is none
    plain_dim: int  # of a query head, the part without position
    rotary_dim: int
    value_dim: int
    is_interleaved: bool  # rotary pairs are neighbours in the checkpoint, else half a head apart

    @property
    def query_dim(self) -> int:
        return self.plain_dim + self.rotary_dim


class Routing(StrEnum):
    """How a token chooses its experts."""

    GREEDY = "greedy"  # the highest of softmax
    GROUP_LIMITED = "group_limited_greedy"  # likewise, within the groups that have the highest
    BIASED = "noaux_tc"  # sigmoid, and a bias per expert that counts for the choice alone (V3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertShape:
    """Mixture of experts, in all layers from `first_layer` on."""

    first_layer: int
    num_experts: int
    num_chosen: int  # by each token
    num_shared: int  # that every token passes, too
    intermediate_size: int  # of one expert
    routing: Routing
    num_groups: int
    num_chosen_groups: int
    is_normalized: bool  # the weights of the chosen add up to 1
    scale: float


def is_deepseek(architecture: str) -> bool:
    return architecture in ("deepseek_v2", "deepseek_v3")


def read_latent(config: Mapping[str, Any]) -> LatentShape:
    return LatentShape(
        rank=read_count(config, "kv_lora_rank"),
        query_rank=None if config.get("q_lora_rank") is None else read_count(config, "q_lora_rank"),
        plain_dim=read_count(config, "qk_nope_head_dim"),
        rotary_dim=read_count(config, "qk_rope_head_dim"),
        value_dim=read_count(config, "v_head_dim"),
        is_interleaved=bool(config.get("rope_interleave", True)),
    )


def read_experts(config: Mapping[str, Any], architecture: str) -> ExpertShape | None:
    if config.get("n_routed_experts") is None:
        return None
    if config.get("moe_layer_freq", 1) != 1:
        raise ModelError(f"`moe_layer_freq` must be 1, found `{config['moe_layer_freq']}`")
    routing = _routing(config, architecture)
    is_grouped = routing is not Routing.GREEDY
    first_layer = config.get("first_k_dense_replace", 0)
    return ExpertShape(
        first_layer=0 if first_layer == 0 else read_count(config, "first_k_dense_replace"),
        num_experts=read_count(config, "n_routed_experts"),
        num_chosen=read_count(config, "num_experts_per_tok"),
        num_shared=read_count(config, "n_shared_experts"),
        intermediate_size=read_count(config, "moe_intermediate_size"),
        routing=routing,
        num_groups=read_count(config, "n_group") if is_grouped else 1,
        num_chosen_groups=read_count(config, "topk_group") if is_grouped else 1,
        # transformers normalizes the weights of V3 alone, whatever V2's config says.
        is_normalized=routing is Routing.BIASED and bool(config.get("norm_topk_prob", True)),
        scale=float(config.get("routed_scaling_factor", 1.0)),
    )


def _routing(config: Mapping[str, Any], architecture: str) -> Routing:
    if architecture == "deepseek_v3":
        return Routing.BIASED
    found = config.get("topk_method", "greedy")
    if found not in (Routing.GREEDY, Routing.GROUP_LIMITED):
        raise ModelError(f"`topk_method` must be `greedy` or `group_limited_greedy`, found `{found}`")
    return Routing(found)
