from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pdctl.views.text import display_width, fold, pad, printable, shorten, wrap


def test_wide_characters_take_two_cells_and_combining_ones_none() -> None:
    assert display_width("日本") == 4
    assert display_width("e\u0301") == 1
    assert display_width("abc") == 3


def test_escape_sequences_of_other_programs_never_reach_the_terminal() -> None:
    assert printable("\x1b[2J\x1b[31mred\x1b[0m \x1b]0;title\x07end\x1b") == "red end"


def test_a_redrawn_line_shows_what_it_ended_as() -> None:
    assert printable("10%\r50%\r100%\r\n") == "100%"


def test_direction_marks_are_dropped() -> None:
    assert printable("a\u202eb") == "ab"


def test_a_cut_line_ends_with_an_ellipsis_and_fits() -> None:
    assert shorten("prefill-0.0 waits", 10) == "prefill-0…"
    assert shorten("日本語日本語", 6) == "日本…"
    assert shorten("fits", 4) == "fits"
    assert shorten("anything", 2, "...") == ""


def test_padding_counts_cells() -> None:
    assert pad("日", 4) == "日  "
    assert pad("1", 4, right=True) == "   1"


def test_wrapped_lines_hang_below_the_first() -> None:
    lines = list(wrap("one two three four", 12, first="> ", rest="  "))
    assert lines == ["> one two", "  three four"]


def test_a_word_longer_than_the_line_stays_whole() -> None:
    path = "/a/very/long/path/that/is/copied"
    assert list(wrap(f"see {path}", 10)) == ["see", path]


def test_without_a_width_nothing_is_wrapped() -> None:
    assert list(wrap("word " * 100, None)) == ["word " * 100]


@given(st.text(), st.integers(min_value=1, max_value=60))
def test_a_shortened_text_never_exceeds_its_width(text: str, width: int) -> None:
    assert display_width(shorten(text, width)) <= width


@given(st.text(), st.integers(min_value=2, max_value=40))
def test_folded_pieces_fit_and_lose_nothing(text: str, width: int) -> None:
    pieces = list(fold(text, width))
    assert "".join(pieces) == text
    assert all(display_width(piece) <= width for piece in pieces)


@given(st.text())
def test_printable_text_has_no_control_characters(text: str) -> None:
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in printable(text))
