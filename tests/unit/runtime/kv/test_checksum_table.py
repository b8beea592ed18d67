from __future__ import annotations

import pytest

from runtime.kv.checksum_table import Damage, find_damage, join_ranks

_TABLE = (10, 11, 12, 13, 20, 21, 22, 23)  # two layers of four heads


def _split(attn_tp_size: int, num_heads: int = 4) -> list[tuple[int, ...]]:
    """What each rank would say of its own heads."""
    size, copies = max(1, num_heads // attn_tp_size), max(1, attn_tp_size // num_heads)
    return [
        tuple(
            _TABLE[layer * num_heads + rank // copies * size + head]
            for layer in range(2)
            for head in range(size)
        )
        for rank in range(attn_tp_size)
    ]


@pytest.mark.parametrize("attn_tp_size", [1, 2, 4, 8])
def test_ranks_make_up_the_table_of_the_model(attn_tp_size):
    by_rank = _split(attn_tp_size)
    assert join_ranks(by_rank, 4) == _TABLE
    assert find_damage(by_rank, _TABLE, 4) is None


@pytest.mark.parametrize("attn_tp_size", [1, 2, 4, 8])
def test_a_difference_names_the_layer_and_the_models_head(attn_tp_size):
    changed = (*_TABLE[:6], 99, _TABLE[7])
    assert find_damage(_split(attn_tp_size), changed, 4) == Damage(layer=1, head=2)


def test_every_copy_of_a_head_is_looked_at():
    by_rank = _split(8)
    by_rank[3] = (11, 99)
    assert find_damage(by_rank, _TABLE, 4) == Damage(layer=1, head=1)


def test_a_missing_layer_is_a_difference():
    assert find_damage(_split(2), _TABLE[:4], 4) == Damage(layer=1, head=0)
    assert find_damage(_split(2), (*_TABLE, 30, 31, 32, 33), 4) == Damage(layer=2, head=0)
