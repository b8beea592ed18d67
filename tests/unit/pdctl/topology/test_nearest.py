from __future__ import annotations

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
