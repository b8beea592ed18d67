from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath

import pytest

from pdctl.events import LockTaken
from pdctl.views.machine import event_value, to_json, to_value


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    name: str
    colour: Colour = Colour.RED
    aside: object = field(default=None, compare=False)


def test_values_keep_their_field_names() -> None:
    assert to_value((Inner(name="a"),)) == [{"name": "a", "colour": "red"}]


def test_a_field_that_does_not_compare_is_no_part_of_the_value() -> None:
    assert "aside" not in to_json(Inner(name="a", aside=object()))


def test_paths_are_text_and_infinities_null() -> None:
    assert to_value({"path": PurePosixPath("/a"), "deadline_s": float("inf")}) == {
        "path": "/a",
        "deadline_s": None,
    }


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="no JSON form for object"):
        to_value({"x": object()})


def test_an_event_says_its_kind_first() -> None:
    assert list(event_value(LockTaken(previous="ada")).items()) == [
        ("event", "lock_taken"),
        ("previous", "ada"),
    ]


def test_characters_beyond_ascii_stay_readable() -> None:
    assert json.loads(to_json("é")) == "é"
    assert to_json("é") == '"é"'
