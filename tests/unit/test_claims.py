"""Numbers of testbeds: nobody has another's, and what killed processes leave is found."""

from __future__ import annotations

import json

import pytest

from tests.testbed.claims import Claims


@pytest.fixture
def claims(tmp_path) -> Claims:
    return Claims(folder=tmp_path / "claims", numbers=range(1, 3))


def test_each_takes_a_number_of_its_own_until_none_is_left(claims, tmp_path):
    assert [claims.take(tmp_path / name, is_kept=True) for name in "abc"] == [1, 2, None]
    assert (claims.at(tmp_path / "b"), claims.at(tmp_path / "c")) == ([2], [])
    assert sorted(each.name for each in claims.folder.iterdir()) == ["1", "2"]


def test_a_number_that_is_not_free_for_other_reasons_is_passed_over(claims, tmp_path):
    assert claims.take(tmp_path, is_kept=True, is_free=lambda number: number != 1) == 2


def test_a_number_given_back_is_free_again_with_nothing_left_in_it(claims, tmp_path):
    claims.take(tmp_path, is_kept=True)
    (claims.place(1) / "socket").touch()
    for _ in range(2):  # another may find it too
        claims.give_back(1)
    assert list(claims.folder.iterdir()) == []
    assert claims.take(tmp_path, is_kept=True) == 1


def test_what_a_dead_process_has_left_is_abandoned_and_what_is_kept_or_alive_is_not(claims, tmp_path):
    claims.take(tmp_path / "ours", is_kept=False)
    claims.take(tmp_path / "kept", is_kept=True)
    assert claims.abandoned() == []
    record = claims.place(1) / "claim.json"
    owner = json.loads(record.read_text())["owner"]
    record.write_text(json.dumps({"base": "/left", "owner": [owner[0], f"1{owner[1]}"]}))
    assert [(number, str(base)) for number, base in claims.abandoned()] == [(1, "/left")]


def test_a_claim_that_goes_while_it_is_looked_at_is_none(claims):
    claims.place(1).mkdir(parents=True)
    assert claims.abandoned() == []
