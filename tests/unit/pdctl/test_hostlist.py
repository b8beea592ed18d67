"""Host lists, folded for people and unfolded from what they write."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.hostlist import fold, is_folded, unfold

NAMES = st.lists(st.from_regex(r"[a-z]{0,2}-?[0-9]{0,3}[a-z.]{0,2}[0-9]{0,3}", fullmatch=True).filter(bool))


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["n1"], "n1"),
        (["login"], "login"),
        (["n01", "n02", "n03", "n15", "m3"], "n[01-03,15],m3"),
        (["n9", "n10", "n8"], "n[8-10]"),
        (["n09", "n9", "n10"], "n[9,09-10]"),
        (["gpu1.dc2", "gpu2.dc2", "gpu3.dc2"], "gpu[1-3].dc2"),
        (["10.0.0.7", "10.0.0.8"], "10.0.0.[7-8]"),
        (["n1", "n1"], "n1"),
        (["b", "a1", "b", "a2"], "b,a[1-2]"),
        (["fd00::1", "fd00::2"], "fd00::[1-2]"),
        (["knoten-ä1", "knoten-ä2"], "knoten-ä[1-2]"),
        (["sn1234567890", "sn1234567891"], "sn1234567890,sn1234567891"),
    ],
)
def test_names_fold_into_few_words(names: list[str], folded: str):
    assert fold(names) == folded


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("n[01-03]", ("n01", "n02", "n03")),
        ("n[9-11]x", ("n9x", "n10x", "n11x")),
        ("r[1-2]n[1,3]", ("r1n1", "r1n3", "r2n1", "r2n3")),
        ("a,b[1-2],c", ("a", "b1", "b2", "c")),
        ("n[099-101]", ("n099", "n100", "n101")),
    ],
)
def test_ranges_unfold_into_names(text: str, names: tuple[str, ...]):
    assert unfold(text) == names


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "a name is empty"),
        ("a,,b", "a name is empty"),
        ("n[1-3", "`n[1-3` is no name: its brackets don't match"),
        ("n1-3]", "`n1-3]` is no name: its brackets don't match"),
        ("n[]", "`` in `n[]` is no number or range like `01-12`"),
        ("n[a-c]", "`a-c` in `n[a-c]` is no number or range like `01-12`"),
        ("n[3-1]", "`3-1` in `n[3-1]` ends before it begins"),
        ("n[001-12]", "`001-12` in `n[001-12]` ends before it begins"),
        ("n[1-999999999]", "`n[1-999999999]` stands for more than 65536 names"),
        ("n[1-999]x[1-999]", "`n[1-999]x[1-999]` stands for more than 65536 names"),
        ("n[1-65000],m[1-65000]", "`n[1-65000],m[1-65000]` stands for more than 65536 names"),
    ],
)
def test_what_is_no_host_list_is_said(text: str, fault: str):
    with pytest.raises(ValueError, match=f"^{re.escape(fault)}$"):
        unfold(text)


@given(NAMES)
def test_folding_loses_no_name_and_adds_none(names: list[str]):
    folded = fold(names)
    assert sorted(unfold(folded) if folded else ()) == sorted(set(names))


@given(NAMES, st.randoms())
def test_the_order_of_numbers_does_not_matter(names: list[str], chance):
    distinct = sorted(set(names))
    shuffled = list(distinct)
    chance.shuffle(shuffled)
    assert sorted(fold(distinct)) == sorted(fold(shuffled))


def test_only_brackets_make_a_range():
    assert is_folded("n[1-2]")
    assert is_folded("n]")
    assert not is_folded("n1-2")
