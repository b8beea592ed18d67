"""Bootstrap fields of disaggregated requests."""

from __future__ import annotations

import pytest

from runtime.engine.request import Rendezvous
from runtime.engine.server.errors import RequestError
from runtime.engine.server.fields import Fields
from runtime.engine.server.rendezvous import read_rendezvous
from runtime.engine.settings import Mode, parse_settings

LAST_ROOM = 2**63 - 1


def settings_of(mode):
    return parse_settings(["--model-path", "m", "--disaggregation-mode", mode.value])


def read(body, *, mode=Mode.DECODE, num_prompts=1, num_choices=1):
    found = read_rendezvous(Fields(body), settings_of(mode), num_prompts=num_prompts, num_choices=num_choices)
    return [(r.bootstrap_host, r.bootstrap_port, r.room) if r else None for r in found]


def test_scalars_of_one_sequence():
    body = {"bootstrap_host": "10.0.0.1", "bootstrap_port": 9000, "bootstrap_room": LAST_ROOM}
    assert read(body) == [("10.0.0.1", 9000, LAST_ROOM)]


def test_null_port_is_our_own():
    assert read({"bootstrap_host": "h", "bootstrap_port": None, "bootstrap_room": 0}) == [("h", 8998, 0)]


def test_lists_go_to_the_sequences_in_order():
    body = {"bootstrap_host": ["a", "b"], "bootstrap_port": [1, None], "bootstrap_room": [7, 9]}
    assert read(body, num_prompts=2) == [("a", 1, 7), ("b", 8998, 9)]
    assert read(body, num_choices=2) == [("a", 1, 7), ("b", 8998, 9)]


def test_one_room_for_many_sequences_counts_on():
    body = {"bootstrap_host": "h", "bootstrap_room": 5}
    assert [room for _, _, room in read(body, num_prompts=3)] == [5, 6, 7]


def test_one_room_per_prompt_counts_on_over_its_choices():
    body = {"bootstrap_host": "h", "bootstrap_room": [10, 20]}
    assert [room for _, _, room in read(body, num_prompts=2, num_choices=3)] == [10, 11, 12, 20, 21, 22]


def test_rooms_stay_63_bits_wide_when_they_count_on():
    body = {"bootstrap_host": "h", "bootstrap_room": LAST_ROOM}
    assert [room for _, _, room in read(body, num_choices=2)] == [LAST_ROOM, 0]


def test_unified_mode_ignores_the_fields():
    assert read({"bootstrap_room": "nonsense"}, mode=Mode.UNIFIED, num_prompts=2) == [None, None]


def test_the_values_are_the_engines_own_type():
    found = read_rendezvous(
        Fields({"bootstrap_host": "h", "bootstrap_port": 1, "bootstrap_room": 2}),
        settings_of(Mode.PREFILL),
        num_prompts=1,
    )
    assert found == (Rendezvous(bootstrap_host="h", bootstrap_port=1, room=2),)


@pytest.mark.parametrize(
    ("body", "num_prompts", "words"),
    [
        ({}, 1, "this is a decode instance, send the request through the router"),
        ({"bootstrap_room": [1, None], "bootstrap_host": "h"}, 2, "send the request through the router"),
        ({"bootstrap_room": [1, 2], "bootstrap_host": "h"}, 3, "has 2 values, wanted one for each of the 3"),
        ({"bootstrap_room": -1, "bootstrap_host": "h"}, 1, "`bootstrap_room` is -1"),
        ({"bootstrap_room": 2**63, "bootstrap_host": "h"}, 1, "wanted an integer from 0 to"),
        ({"bootstrap_room": "1", "bootstrap_host": "h"}, 1, '`bootstrap_room` is "1"'),
        ({"bootstrap_room": 1}, 1, "`bootstrap_host` is null, wanted a host name"),
        (
            {"bootstrap_room": 1, "bootstrap_host": "h", "bootstrap_port": 70000},
            1,
            "`bootstrap_port` is 70000",
        ),
    ],
)
def test_wrong_fields_are_refused_by_name(body, num_prompts, words):
    with pytest.raises(RequestError) as caught:
        read(body, num_prompts=num_prompts)
    assert words in caught.value.message
    assert caught.value.status == 400
