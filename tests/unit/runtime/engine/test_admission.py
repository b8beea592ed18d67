from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.engine.admission import choose_lane
from runtime.engine.request import GenerateInput, Rendezvous, SamplingParams


def _request(room: int | None) -> GenerateInput:
    meeting = None if room is None else Rendezvous(bootstrap_host="h", bootstrap_port=1, room=room)
    return GenerateInput(rid="one", token_ids=(1,), sampling=SamplingParams(), rendezvous=meeting)


@pytest.mark.parametrize(("room", "lane"), [(0, 0), (5, 1), (7, 3), (2**63 - 1, 3)])
def test_on_prefill_the_room_says_which_data_parallel_rank(room, lane):
    assert choose_lane(_request(room), [0, 9, 9, 9], by_room=True) == lane


@pytest.mark.parametrize("room", [None, 5])
def test_elsewhere_it_is_the_one_with_the_fewest_requests(room):
    assert choose_lane(_request(room), [3, 1, 2], by_room=False) == 1
    assert choose_lane(_request(room), [2, 2, 2], by_room=False) == 0


def test_a_request_without_a_room_goes_to_the_fewest_on_prefill_too():
    assert choose_lane(_request(None), [3, 1, 2], by_room=True) == 1


@pytest.mark.parametrize("by_room", [True, False])
def test_the_callers_wish_comes_before_room_and_load(by_room):
    assert choose_lane(replace(_request(5), routed_dp_rank=3), [0, 0, 0, 9], by_room=by_room) == 3
