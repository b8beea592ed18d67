"""Every head of every decode rank comes from a rank that holds it, once; checked against a dense copy."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kv.reshard import HeadSlice, KVKind, ReshardError, heads_of, num_copies, reshard

_SIZES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]


def _fits(attn_tp: int, num_heads: int) -> bool:
    return num_heads % attn_tp == 0 or attn_tp % num_heads == 0


_SHAPES = [
    (one, two, heads)
    for one, two, heads in product(_SIZES, repeat=3)
    if _fits(one, heads) and _fits(two, heads)
]


def _dense(attn_tp: int, num_heads: int) -> list[list[int]]:
    """What each rank holds, by definition: the model's heads, repeated until there is one for every rank."""
    heads = list(range(num_heads))
    if attn_tp > num_heads:
        heads = [head for head in heads for _ in range(attn_tp // num_heads)]
    size = len(heads) // attn_tp
    return [heads[rank * size : (rank + 1) * size] for rank in range(attn_tp)]


@pytest.mark.parametrize("prefill_tp", _SIZES)
def test_the_slices_build_every_decode_rank_out_of_prefill_ranks(prefill_tp):
    for decode_tp, num_heads in [shape[1:] for shape in _SHAPES if shape[0] == prefill_tp]:
        prefill, wanted = _dense(prefill_tp, num_heads), _dense(decode_tp, num_heads)
        built: list[list[int | None]] = [[None] * len(heads) for heads in wanted]
        table = reshard(prefill_attn_tp=prefill_tp, decode_attn_tp=decode_tp, num_kv_heads=num_heads)
        for one in table.slices:
            for offset in range(one.num_heads):
                assert built[one.decode_rank][one.dst_head + offset] is None, "a head is sent twice"
                built[one.decode_rank][one.dst_head + offset] = prefill[one.prefill_rank][
                    one.src_head + offset
                ]
        assert built == wanted


@given(st.sampled_from(_SHAPES), st.sampled_from(KVKind))
def test_the_views_of_one_rank_are_the_table_seen_from_there(shape, kind):
    prefill_tp, decode_tp, num_heads = shape
    table = reshard(prefill_attn_tp=prefill_tp, decode_attn_tp=decode_tp, num_kv_heads=num_heads, kind=kind)
    assert [one for rank in range(decode_tp) for one in table.into(rank)] == list(table.slices)
    sent = {one for rank in range(prefill_tp) for one in table.out_of(rank)}
    assert sent == set(table.slices)
    for one, two in product(range(prefill_tp), range(decode_tp)):
        pair = [entry for entry in table.slices if (entry.prefill_rank, entry.decode_rank) == (one, two)]
        assert [table.between(one, two)] == (pair or [None]), "at most one slice between two ranks"


@given(st.sampled_from(_SHAPES))
def test_equal_splits_pair_up_one_to_one_and_move_whole_slots(shape):
    attn_tp, _, num_heads = shape
    table = reshard(prefill_attn_tp=attn_tp, decode_attn_tp=attn_tp, num_kv_heads=num_heads)
    assert [(one.prefill_rank, one.decode_rank) for one in table.slices] == [(n, n) for n in range(attn_tp)]
    assert table.is_whole


@given(st.sampled_from(_SIZES), st.sampled_from(_SIZES), st.integers(1, 128))
def test_a_latent_row_comes_whole_from_one_rank_whatever_the_heads(prefill_tp, decode_tp, num_heads):
    table = reshard(
        prefill_attn_tp=prefill_tp, decode_attn_tp=decode_tp, num_kv_heads=num_heads, kind=KVKind.LATENT
    )
    assert table.is_whole
    assert [len(table.into(rank)) for rank in range(decode_tp)] == [1] * decode_tp
    num_senders = len({one.prefill_rank for one in table.slices})
    assert num_senders == min(prefill_tp, decode_tp), "receivers are dealt out over all senders"


@pytest.mark.parametrize(
    ("prefill_tp", "decode_tp", "num_heads", "ways"),
    [  # (prefill rank, decode rank, first head there, first head here, heads)
        (4, 1, 8, [(0, 0, 0, 0, 2), (1, 0, 0, 2, 2), (2, 0, 0, 4, 2), (3, 0, 0, 6, 2)]),
        (2, 4, 8, [(0, 0, 0, 0, 2), (0, 1, 2, 0, 2), (1, 2, 0, 0, 2), (1, 3, 2, 0, 2)]),
        (4, 1, 2, [(0, 0, 0, 0, 1), (2, 0, 0, 1, 1)]),
        (2, 4, 2, [(0, 0, 0, 0, 1), (0, 1, 0, 0, 1), (1, 2, 0, 0, 1), (1, 3, 0, 0, 1)]),
        (2, 3, 6, [(0, 0, 0, 0, 2), (0, 1, 2, 0, 1), (1, 1, 0, 1, 1), (1, 2, 1, 0, 2)]),
    ],
)
def test_known_shapes(prefill_tp, decode_tp, num_heads, ways):
    table = reshard(prefill_attn_tp=prefill_tp, decode_attn_tp=decode_tp, num_kv_heads=num_heads)
    names = ("prefill_rank", "decode_rank", "src_head", "dst_head", "num_heads")
    assert list(table.slices) == [HeadSlice(**dict(zip(names, way, strict=True))) for way in ways]


def test_a_rank_whose_head_others_send_sends_nothing():
    table = reshard(prefill_attn_tp=4, decode_attn_tp=1, num_kv_heads=2)
    assert [len(table.out_of(rank)) for rank in range(4)] == [1, 0, 1, 0]
    assert not table.is_whole


@pytest.mark.parametrize(("attn_tp", "num_heads"), [(3, 8), (8, 3), (0, 4), (4, 0), (-1, 4)])
def test_an_uneven_split_is_told_with_its_numbers(attn_tp, num_heads):
    with pytest.raises(ReshardError, match=f"{num_heads} KV heads .* over {attn_tp} attention ranks"):
        heads_of(0, attn_tp, num_heads)
    with pytest.raises(ReshardError):
        reshard(prefill_attn_tp=1, decode_attn_tp=attn_tp or 3, num_kv_heads=num_heads)


def test_heads_lie_on_neighbouring_ranks():
    assert [list(heads_of(rank, 4, 2)) for rank in range(4)] == [[0], [0], [1], [1]]
    assert [list(heads_of(rank, 2, 4)) for rank in range(2)] == [[0, 1], [2, 3]]
    assert (num_copies(4, 2), num_copies(2, 4)) == (2, 1)
