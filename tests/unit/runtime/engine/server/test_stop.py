"""Stop strings over pieces of text."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from runtime.engine.server.stop import StopMatcher


def run(stops, pieces, *, keep=False):
    """Text shown over all pieces, and the stop string that matched."""
    matcher = StopMatcher(stops, keep_match=keep)
    shown = ""
    for piece in pieces:
        scan = matcher.push(piece)
        shown += scan.text
        if scan.matched is not None:
            return shown, scan.matched
    return shown + matcher.flush(), None


def first_completed(stops, text):
    """What the matcher promises, written the slow way."""
    for end in range(1, len(text) + 1):
        hits = [stop for stop in stops if text[:end].endswith(stop)]
        if hits:
            longest = max(hits, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(
    st.lists(st.text(alphabet="ab", min_size=1, max_size=5), min_size=1, max_size=4),
    st.lists(st.text(alphabet="abc", max_size=4), max_size=8),
)
def test_pieces_never_change_where_the_text_ends(stops, pieces):
    assert run(stops, pieces) == first_completed(stops, "".join(pieces))


@given(
    st.lists(st.text(alphabet="ab", min_size=1, max_size=5), min_size=1, max_size=4),
    st.lists(st.text(alphabet="abc", max_size=4), max_size=8),
)
def test_only_what_may_begin_a_stop_string_is_held_back(stops, pieces):
    matcher, shown, fed = StopMatcher(stops), "", ""
    for piece in pieces:
        fed += piece
        scan = matcher.push(piece)
        shown += scan.text
        if scan.matched is not None:
            return
        held = fed[len(shown) :]
        prefixes = [stop[:n] for stop in stops for n in range(len(stop))]
        assert held == max((p for p in prefixes if fed.endswith(p)), key=len)


def test_stop_string_across_pieces_is_cut():
    assert run(["</s>"], ["one<", "/", "s>two"]) == ("one", "</s>")


def test_keeping_the_match_still_drops_what_follows():
    assert run(["\n\n"], ["one\n", "\ntwo"], keep=True) == ("one\n\n", "\n\n")


def test_the_one_that_completes_first_wins_and_of_two_the_longer():
    assert run(["abcd", "bc"], ["abcd"]) == ("a", "bc")
    assert run(["c", "abc"], ["abc"]) == ("", "abc")


def test_restarts_inside_a_partial_match():
    assert run(["aab"], ["a", "a", "a", "b"]) == ("a", "aab")


def test_without_stop_strings_text_passes_at_once():
    assert StopMatcher([]).push("abc").text == "abc"


def test_ten_thousand_characters_cost_constant_time_per_character():
    stop = "a" * 9_999 + "b"
    matcher = StopMatcher([stop])
    started = time.perf_counter()
    shown = "".join(matcher.push("a").text for _ in range(30_000))
    assert len(shown) == 30_000 - 9_999
    assert matcher.push("b").matched == stop
    assert time.perf_counter() - started < 5.0
