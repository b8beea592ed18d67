from __future__ import annotations

import pytest

from runtime.engine.ranks.shape import RankShape, part


def test_neighbours_share_a_pool_and_the_model_alike():
    shape = RankShape(tp_size=8, attn_dp_size=2)
    places = [(shape.at(rank).attn_dp_rank, shape.at(rank).attn_tp_rank) for rank in range(8)]
    assert places == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]


@pytest.mark.parametrize(("total", "num_parts"), [(10, 3), (8, 8), (3, 5), (259, 4)])
def test_parts_cover_all_once_and_differ_by_one_at_most(total, num_parts):
    parts = [part(total, index, num_parts) for index in range(num_parts)]
    assert [one for some in parts for one in some] == list(range(total))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(("tp_size", "ep_size"), [(4, 1), (4, 2), (4, 4), (6, 3)])
def test_every_column_of_every_expert_lies_on_one_rank(tp_size, ep_size):
    shape = RankShape(tp_size=tp_size, ep_size=ep_size)
    held = [
        (expert, column)
        for rank in range(tp_size)
        for expert in shape.at(rank).experts(8)
        for column in shape.at(rank).expert_columns(20)
    ]
    assert sorted(held) == [(expert, column) for expert in range(8) for column in range(20)]
