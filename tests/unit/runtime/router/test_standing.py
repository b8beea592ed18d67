from __future__ import annotations

import dataclasses

from runtime.router.settings import HealthSettings, RouterSettings
from runtime.router.standing import Standing, after_poll, after_refusal


def run(settings: RouterSettings, polls: str, standing: Standing | None = None) -> str:
    """`+` is a good poll, `-` a bad one, `x` a refusal; `I` is in and `o` is out after each."""
    health: HealthSettings = dataclasses.replace(settings.health, failure_threshold=3, success_threshold=2)
    standing = standing or Standing()
    seen = ""
    for event in polls:
        if event == "x":
            standing = after_refusal(standing)
        else:
            standing = after_poll(standing, is_good=event == "+", settings=health)
        seen += "I" if standing.is_healthy else "o"
    return seen


def test_first_good_poll_brings_a_new_worker_in(settings: RouterSettings) -> None:
    assert run(settings, "--+") == "ooI"


def test_bad_polls_in_a_row_take_it_out_and_good_ones_bring_it_back(settings: RouterSettings) -> None:
    assert run(settings, "+---+++") == "IIIooII"


def test_one_good_poll_between_bad_ones_keeps_it_in(settings: RouterSettings) -> None:
    assert run(settings, "+--+--+") == "IIIIIII"


def test_one_bad_poll_between_good_ones_keeps_it_out(settings: RouterSettings) -> None:
    assert run(settings, "+---+-++") == "IIIooooI"


def test_refusal_takes_it_out_until_the_next_good_poll(settings: RouterSettings) -> None:
    assert run(settings, "+x+") == "IoI"
    assert run(settings, "+x--+") == "IoooI"


def test_refusal_while_out_does_not_shorten_the_way_back(settings: RouterSettings) -> None:
    assert run(settings, "+---x++") == "IIIoooI"
