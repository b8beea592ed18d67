"""The bootstrap table as a value: what it takes in, and what it answers."""

from __future__ import annotations

import pytest

from runtime.bootstrap.registry import (
    RankRecord,
    RegistrationError,
    RoomTable,
    RouteTable,
    ServerShape,
    parse_rank_record,
)

_BODY = {"rank_ip": "10.0.0.1", "rank_port": 4000, "page_size": 16, "kv_cache_dtype": "float32"}


def _record(**fields: object) -> RankRecord:
    return parse_rank_record(_BODY | fields)


def test_absent_sizes_mean_one_rank():
    record = _record()
    assert record.num_ranks == 1
    assert record.key == (0, 0, 0, 0)


def test_keys_of_other_versions_are_left_out():
    assert _record(enable_dsa_cache_layer_split=False, dsv41_spec_layout=None) == _record()


def test_the_data_parallel_rank_is_the_systems_when_that_is_larger():
    assert _record(attn_dp_size=4, attn_dp_rank=3).dp_rank == 3
    assert _record(system_dp_size=2, system_dp_rank=1, attn_dp_size=1).dp_rank == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rank_port": 0}, "`rank_port` must be an integer from 1 to 65535, found 0"),
        ({"rank_port": "4000"}, "found '4000'"),
        ({"rank_port": True}, "found True"),
        ({"rank_ip": None}, "`rank_ip` is missing"),
        ({"rank_ip": ""}, "1 to 255 characters"),
        ({"rank_ip": "x" * 300}, "1 to 255 characters"),
        ({"page_size": None}, "`page_size` must be an integer"),
        ({"attn_tp_size": 2, "attn_tp_rank": 2}, "`attn_tp_rank` must be an integer from 0 to 1, found 2"),
        ({"attn_tp_size": 4096, "attn_dp_size": 4096}, "16777216 ranks"),
        ({"kv_layout": 5}, "`kv_layout` must be a text"),
        ({"prefill_http_port": -1}, "`prefill_http_port`"),
    ],
)
def test_a_bad_field_is_named_with_what_was_found(fields, words):
    with pytest.raises(RegistrationError) as caught:
        _record(**fields)
    assert words in str(caught.value)


def test_the_table_answers_when_the_last_rank_has_come():
    table = RouteTable()
    for rank in range(4):
        assert table.shape() is None
        table.register(_record(attn_tp_size=4, attn_tp_rank=rank, rank_port=4000 + rank))
    shape = table.shape()
    assert shape is not None
    assert (shape.attn_tp_size, shape.page_size, shape.follow_bootstrap_room) == (4, 16, True)
    found = table.rank(dp_rank=0, cp_rank=0, tp_rank=2, pp_rank=0)
    assert found is not None
    assert found.rank_port == 4002
    assert table.rank(dp_rank=1, cp_rank=0, tp_rank=0, pp_rank=0) is None


def test_a_restarted_rank_takes_its_own_place():
    table = RouteTable()
    table.register(_record(rank_port=4000))
    table.register(_record(rank_port=5000, page_size=32))
    found = table.rank(dp_rank=0, cp_rank=0, tp_rank=0, pp_rank=0)
    assert found is not None
    assert found.rank_port == 5000
    assert table.shape() == ServerShape.of(_record(page_size=32))


def test_ranks_of_one_server_must_agree():
    table = RouteTable()
    table.register(_record(attn_tp_size=2, attn_tp_rank=0))
    with pytest.raises(RegistrationError, match="page_size=64"):
        table.register(_record(attn_tp_size=2, attn_tp_rank=1, page_size=64))


def test_rooms_are_found_until_they_expire():
    rooms = RoomTable(ttl_s=120.0)
    rooms.register(7, 3, now_s=0.0)
    rooms.register(8, 1, now_s=100.0)
    assert rooms.query([7, 8, 9], now_s=119.0) == {7: 3, 8: 1}
    assert rooms.query([7, 8, 9], now_s=120.0) == {8: 1}
    assert len(rooms) == 1


def test_a_room_that_is_registered_again_lives_again():
    rooms = RoomTable(ttl_s=10.0)
    rooms.register(7, 3, now_s=0.0)
    rooms.register(7, 4, now_s=8.0)
    assert rooms.query([7], now_s=15.0) == {7: 4}


def test_the_oldest_room_leaves_a_full_table():
    rooms = RoomTable(max_rooms=3)
    for room in range(5):
        rooms.register(room, 0, now_s=0.0)
    assert rooms.query(range(5), now_s=1.0) == {2: 0, 3: 0, 4: 0}
