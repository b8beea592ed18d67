from __future__ import annotations

import pytest

from pdctl.topology.nearest import nearest, suggest


def test_a_slip_of_the_finger_is_found() -> None:
    assert nearest("instnaces", ["instances", "port"]) == "instances"


def test_underscores_hyphens_and_case_make_no_difference() -> None:
    assert nearest("Bootstrap-Port", ["bootstrap_port", "port"]) == "bootstrap_port"


def test_nothing_near_lists_what_is_known() -> None:
    assert suggest("zzz", ["alpha", "beta"]) == "known here: `alpha`, `beta`"


def test_a_long_list_is_cut() -> None:
    hint = suggest("zzz", [f"name-{index}" for index in range(30)])
    assert hint is not None
    assert hint.endswith("`name-11`, …")


def test_nothing_known_gives_no_hint() -> None:
    assert suggest("zzz", []) is None


@pytest.mark.parametrize(
    ("word", "known"),
    [("PD999", "PD609"), ("flashattn3", "minicpm_flashattn"), ("page", "port")],
)
def test_what_shares_some_letters_is_not_near(word: str, known: str) -> None:
    assert nearest(word, [known]) is None


def test_one_slip_in_a_short_word_is_found() -> None:
    assert nearest("UXC", ["UCX", "POSIX"]) == "UCX"
