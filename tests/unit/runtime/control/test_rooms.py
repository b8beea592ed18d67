from __future__ import annotations

import json
from itertools import permutations

import pytest

from runtime.control.rooms import KVPoll, RecentRooms, advance


def test_states_have_sglangs_names_and_numbers():
    wire = '{"Failed": 0, "Bootstrapping": 1, "WaitingForInput": 2, "Transferring": 3, "Success": 4}'
    assert {state.name: state.value for state in KVPoll} == json.loads(wire)


@pytest.mark.parametrize("reports", list(permutations(KVPoll, 3)))
def test_a_room_only_moves_up_and_final_states_stay(reports):
    state = KVPoll.Bootstrapping
    for report in reports:
        after = advance(state, report)
        assert after == state if state.is_final else after >= state or after is KVPoll.Failed
        state = after


def test_a_recent_room_is_told_once():
    rooms = RecentRooms()
    rooms.put(5, "gone", now_s=0.0)
    assert rooms.take(5, now_s=1.0) == "gone"
    assert rooms.take(5, now_s=1.0) is None


def test_a_recent_room_is_forgotten_with_time():
    rooms = RecentRooms(ttl_s=30.0)
    rooms.put(5, "gone", now_s=0.0)
    assert rooms.take(5, now_s=30.0) is None


def test_the_oldest_recent_room_leaves_first():
    rooms = RecentRooms(max_rooms=2)
    for room in (1, 2, 1, 3):
        rooms.put(room, str(room), now_s=0.0)
    assert rooms.take(2, now_s=1.0) is None
    assert rooms.take(1, now_s=1.0) == "1"
    assert rooms.take(3, now_s=1.0) == "3"
