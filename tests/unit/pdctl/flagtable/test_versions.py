from __future__ import annotations

import pytest

from pdctl.flagtable.versions import in_order, nearest_lower, version_key

ORDER = ("0.4.8", "0.5", "0.5.6.post2", "0.5.9", "0.5.10rc0", "0.5.10", "0.5.10.post1", "0.5.12.post1", "1.0")


def test_versions_follow_each_other_as_releases_do() -> None:
    assert in_order(reversed(ORDER)) == ORDER


@pytest.mark.parametrize("same", ["0.5.10", "v0.5.10", " 0.5.10 ", "0.5.10+cu129", "0.5.10.0"])
def test_spellings_of_one_version_are_equal(same: str) -> None:
    assert version_key(same) == version_key("0.5.10")


@pytest.mark.parametrize("word", ["", "main", "0.5.x", "latest-1"])
def test_what_is_no_version_has_no_key(word: str) -> None:
    assert version_key(word) is None


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("0.5.11", "0.5.10.post1"),
        ("0.5.10", "0.5.10"),
        ("0.5.10+local", "0.5.10"),
        ("9.9", "1.0"),
        ("0.1", "0.4.8"),  # older than all: the oldest is the nearest
        ("main", "1.0"),
    ],
)
def test_the_nearest_lower_version_stands_in(version: str, found: str) -> None:
    assert nearest_lower(version, ORDER) == found


def test_without_versions_nothing_stands_in() -> None:
    assert nearest_lower("0.5.9", ()) is None
