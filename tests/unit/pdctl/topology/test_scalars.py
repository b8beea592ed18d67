"""Words without quotes: the core schema of YAML 1.2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.topology.scalars import resolve_plain


@pytest.mark.parametrize(
    "text",
    [
        "on",
        "off",
        "yes",
        "no",
        "y",
        "n",
        "On",
        "04:00:00",
        "2026-11-29",
        "1_000",
        "0b11",
        ".inf",
        ".nan",
        "1e999",
        "-",
        ".",
    ],
)
def test_what_yaml_1_1_would_turn_into_something_else_stays_text(text: str) -> None:
    assert resolve_plain(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-12", -12),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
    ],
)
def test_core_types(text: str, value: object) -> None:
    found = resolve_plain(text)
    assert found == value
    assert type(found) is type(value)


def test_a_number_of_a_thousand_digits_stays_text() -> None:
    assert resolve_plain("9" * 1000) == "9" * 1000
    assert resolve_plain("0." + "9" * 1000) == "0." + "9" * 1000


@given(st.integers(min_value=-(10**18) + 1, max_value=10**18 - 1))
def test_whole_numbers_survive(number: int) -> None:
    assert resolve_plain(str(number)) == number
