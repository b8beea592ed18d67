"""YAML to a tree: bounds, and each fault where it is."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.topology.compose import MAX_ALIASED_VALUES, MAX_DEPTH, compose
from pdctl.topology.text import SourceText
from pdctl.topology.tree import Value, flatten


def values(text: str) -> Value:
    composed = compose(SourceText(file="f", text=text))
    assert composed.diagnostics == ()
    assert composed.tree is not None
    return flatten(composed.tree).value


def faults(text: str) -> list[str]:
    found = compose(SourceText(file="f", text=text)).diagnostics
    return [f"{each.code} {each.span.line}:{each.span.column}" for each in found if each.span is not None]


def test_keys_keep_their_spelling() -> None:
    assert values("on: 1\noff: 2\nyes: 3\n") == {"on": 1, "off": 2, "yes": 3}


def test_quotes_make_text() -> None:
    assert values("a: '1'\nb: \"true\"\nc: !!str 5\nd: |\n  x\n") == {
        "a": "1",
        "b": "true",
        "c": "5",
        "d": "x\n",
    }


def test_every_key_and_value_knows_its_place() -> None:
    composed = compose(SourceText(file="f", text="a:\n  b: [x, long word]\n"))
    assert composed.tree is not None
    source = flatten(composed.tree).source
    key, value = source.key("a", "b"), source.value("a", "b", 1)
    assert key is not None
    assert value is not None
    assert (key.line, key.column, key.length) == (2, 3, 1)
    assert (value.line, value.column, value.length) == (2, 10, 9)


def test_characters_beyond_the_basic_plane_count_as_one_column() -> None:
    composed = compose(SourceText(file="f", text="{a: 𝄞𝄞, b: x}"))
    assert composed.tree is not None
    span = flatten(composed.tree).source.value("b")
    assert span is not None
    assert span.column == 12


def test_anchors_and_merge_keys_are_understood() -> None:
    text = "base: &base {x: 1, y: 2}\nother: &other {y: 9, z: 3}\nall:\n"
    text += "  <<: [*base, *other]\n  x: 5\nagain: *base\n"
    assert values(text) == {
        "base": {"x": 1, "y": 2},
        "other": {"y": 9, "z": 3},
        "all": {"x": 5, "y": 2, "z": 3},
        "again": {"x": 1, "y": 2},
    }


def test_a_quoted_merge_key_is_a_key() -> None:
    assert values('"<<": 1') == {"<<": 1}


def test_an_alias_has_the_place_of_the_alias_and_its_parts_that_of_the_anchor() -> None:
    composed = compose(SourceText(file="f", text="a: &x {k: v}\nb: *x\n"))
    assert composed.tree is not None
    source = flatten(composed.tree).source
    whole, part = source.value("b"), source.value("b", "k")
    assert whole is not None
    assert part is not None
    assert (whole.line, part.line) == (2, 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1\nb: 2\na: 3\n", ["PD110 3:1"]),
        ("a: {x: 1, x: 2}\nb: {y: 1, y: 2}\n", ["PD110 1:11", "PD110 2:11"]),
        ("a: &x {b: *x}\n", ["PD111 1:11"]),
        ("a: *nothing\n", ["PD111 1:4"]),
        ("a: {<<: 3}\n", ["PD111 1:9"]),
        ("a: {<<: [{x: 1}, y]}\n", ["PD111 1:9"]),
        ("1: a\ntrue: b\nnull: c\n", ["PD113 1:1", "PD113 2:1", "PD113 3:1"]),
        ("? [x, y]\n: 1\nb: 2\n", ["PD113 1:3"]),
        ("a: !!python/object/apply:os.system [true]\n", ["PD114 1:4"]),
        ("a: !secret x\nb: !!binary eA==\n", ["PD114 1:4", "PD114 2:4"]),
        ("a: 1\n---\nb: 2\n", ["PD107 2:1"]),
        ("a: 1\na: 2\nb: [1\n", ["PD110 2:1", "PD105 3:4"]),
        ("a:\n\tb: 1\n", ["PD106 2:1"]),
        ("a:\n  b: 1\n \tc: 1\n", ["PD106 3:2"]),
        ("a: b: c\n", ["PD105 1:5"]),
        ("a: 'open\nb: 1\n", ["PD105 1:4"]),
        ("a: @home\n", ["PD105 1:4"]),
        ("a:\n  - x\n b: 1\n", ["PD105 3:2"]),
        ("%YAML 3.0\n---\na: 1\n", ["PD105 1:1"]),
    ],
)
def test_faults_are_found_in_place(text: str, found: list[str]) -> None:
    assert faults(text) == found


def test_a_second_document_leaves_the_first_to_be_checked() -> None:
    composed = compose(SourceText(file="f", text="a: 1\n---\nb: 2\n"))
    assert composed.tree is not None
    assert flatten(composed.tree).value == {"a": 1}


def test_the_end_mark_of_a_document_is_no_second_document() -> None:
    assert values("---\na: 1\n...\n# done\n") == {"a": 1}


@pytest.mark.parametrize("text", ["", "# only a comment\n", "\n\n"])
def test_nothing_gives_no_tree(text: str) -> None:
    composed = compose(SourceText(file="f", text=text))
    assert (composed.tree, composed.diagnostics) == (None, ())


def test_depth_is_bounded_exactly() -> None:
    assert faults("[" * MAX_DEPTH + "]" * MAX_DEPTH) == []
    assert faults("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)) == [f"PD112 1:{MAX_DEPTH + 1}"]


def test_a_million_brackets_end_in_a_diagnostic() -> None:
    assert faults("[" * 1_000_000)[0].startswith("PD112")


def test_aliases_count_towards_depth() -> None:
    half = "[" * 20 + "]" * 20
    assert faults(f"a: &a {half}\nb: {'[' * 20}*a{']' * 20}\n") == ["PD112 2:24"]


def test_laughs_are_weighed_before_anything_expands() -> None:
    lines = ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 40)]
    started = time.monotonic()
    assert faults("\n".join(lines)) == ["PD111 5:10"]
    assert time.monotonic() - started < 1.0


def test_aliases_up_to_the_limit_are_fine() -> None:
    block = "x" + ", x" * 98  # with its list, 100 values
    uses = ", ".join(["*a"] * (MAX_ALIASED_VALUES // 100))
    assert faults(f"a: &a [{block}]\nb: [{uses}]\n") == []
    assert faults(f"a: &a [{block}]\nb: [{uses}, *a]\n")[0].startswith("PD111 2:")


@given(st.text(alphabet=st.sampled_from("ab:-[]{}&*<>!|'\"?,# \n0.$"), max_size=60))
def test_no_text_escapes_as_an_exception(text: str) -> None:
    composed = compose(SourceText(file="f", text=text))
    if composed.tree is not None:
        flatten(composed.tree)
    for fault in composed.diagnostics:
        assert fault.span is not None
        assert fault.span.length >= 1
        assert fault.span.line <= text.count("\n") + 1
