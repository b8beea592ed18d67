"""A DeepSeek config is understood, or refused with the key that stands in the way."""

from __future__ import annotations

import pytest

from runtime.engine.model.config import config_from_json
from runtime.engine.model.deepseek import Routing
from runtime.engine.model.errors import ModelError
from runtime.engine.model.partition import head_part
from runtime.engine.ranks.shape import RankShape

_DOCUMENT = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "kv_lora_rank": 24,
    "q_lora_rank": None,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 20,
    "first_k_dense_replace": 1,
}


def _config(**changes: object):
    return config_from_json(_DOCUMENT | changes, {})


def test_a_slot_is_one_row_for_all_heads():
    config = _config()
    assert (config.num_slot_heads, config.slot_dim, config.rotary_dim, config.head_dim) == (1, 32, 8, 24)


def test_every_rank_holds_the_row():
    part = head_part(_config(), RankShape(tp_size=4, tp_rank=3))
    assert (part.queries, part.keys) == (range(3, 4), range(1))


def test_the_first_layers_are_dense():
    assert [_config().has_experts(layer) for layer in range(3)] == [False, True, True]
    assert not _config(n_routed_experts=None).has_experts(2)


def test_v3_routes_by_biased_scores():
    config = _config(architectures=["DeepseekV3ForCausalLM"], n_group=4, topk_group=2)
    assert config.experts is not None
    assert (config.experts.routing, config.experts.is_normalized) == (Routing.BIASED, True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kv_lora_rank": None}, "`kv_lora_rank` must be a positive whole number, found `None`"),
        ({"num_experts_per_tok": 0}, "`num_experts_per_tok` must be a positive whole number"),
        ({"topk_method": "dice"}, "`topk_method` must be `greedy` or `group_limited_greedy`, found `dice`"),
        ({"topk_method": "group_limited_greedy"}, "`n_group` must be a positive whole number"),
        ({"moe_layer_freq": 2}, "`moe_layer_freq` must be 1, found `2`"),
        ({"qk_rope_head_dim": 7}, "rotary positions need an even `head_dim`, found 7"),
    ],
)
def test_what_is_not_computed_is_refused_by_its_key(changes, words):
    with pytest.raises(ModelError, match=words):
        _config(**changes)
