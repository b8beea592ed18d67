from __future__ import annotations

import pytest

from pdctl.fields import FieldError
from pdctl.flagtable.history import History, extended, has_flag, history_text, parse_history
from pdctl.flagtable.model import Flag, FlagTable


def table(version: str, *names: str, successor: str | None = None) -> FlagTable:
    flags = [Flag(name=name) for name in names]
    old = [] if successor is None else [Flag(name="old", is_deprecated=True, successor=successor)]
    return FlagTable.of("sglang", version, [*flags, *old])


def grown(*tables: FlagTable) -> History:
    history = History()
    for each in tables:
        history = extended(history, each)
    return history


def test_a_flag_spans_from_the_first_to_the_last_version_that_has_it() -> None:
    history = grown(table("0.5.9", "a", "b"), table("0.5.10", "b", "c"), table("0.5.11", "b"))
    assert history.sampled == ("0.5.9", "0.5.10", "0.5.11")
    assert history.spans == {"a": ("0.5.9", "0.5.9"), "b": ("0.5.9", "0.5.11"), "c": ("0.5.10", "0.5.10")}


def test_the_order_in_which_versions_are_read_makes_no_difference() -> None:
    tables = (table("0.5.9", "a", successor="--x"), table("0.5.10", "a", successor="--y"), table("0.5.11"))
    assert grown(*tables) == grown(*reversed(tables))


def test_the_newest_word_about_a_successor_stays() -> None:
    assert grown(table("1", successor="--x"), table("2", successor="--y")).successors == {"old": "--y"}
    assert grown(table("2", successor="--y"), table("1", successor="--x")).successors == {"old": "--y"}


def test_a_history_survives_being_written_and_read() -> None:
    history = grown(table("0.5.9", "a", successor="--x"), table("0.5.10", "b"))
    assert parse_history("it", history_text(history).encode()) == history


@pytest.mark.parametrize(
    ("version", "has"),
    [("0.5.9", True), ("0.5.10", True), ("0.5.11", True), ("0.5.12", False), ("0.5", False)],
)
def test_a_version_between_two_that_have_a_flag_has_it(version: str, has: bool) -> None:
    history = grown(table("0.5.9", "a"), table("0.5.11", "a"), table("0.5.13"))
    assert has_flag(history, "a", version) is has
    assert not has_flag(history, "b", version)
    assert not has_flag(history, "a", "main")


def test_another_format_is_a_field_error() -> None:
    with pytest.raises(FieldError):
        parse_history("it", b'{"format": "other"}')
