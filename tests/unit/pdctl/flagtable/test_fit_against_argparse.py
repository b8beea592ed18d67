"""What fits is what a real argument parser takes, rendered as pdctl renders it: any flag, any value."""

from __future__ import annotations

import argparse
import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from pdctl.flags import to_argv
from pdctl.flagtable.fit import misfit
from pdctl.flagtable.model import Flag, FlagTable, ValueType
from pdctl.topology.model import ArgValue, JsonArg

READERS = {ValueType.TEXT: str, ValueType.INT: int, ValueType.FLOAT: float, ValueType.JSON: json.loads}
WORDS = st.one_of(
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False, width=16),
    st.sampled_from(["auto", "a b", "-x", "--page-size", "-1", "1.5", "{}", "[1]", "", "-", "1e3", "٣"]),
    st.sampled_from([JsonArg('{"a":1}'), JsonArg("{}")]),
)
VALUES = st.one_of(st.none(), st.booleans(), WORDS, st.lists(WORDS, max_size=3).map(tuple))
CHOICES = {
    ValueType.TEXT: ("auto", "1"),
    ValueType.INT: (1, 2),
    ValueType.FLOAT: (1.5,),
    ValueType.JSON: None,
}


@st.composite
def flags(draw: st.DrawFn) -> Flag:
    if draw(st.integers(0, 4)) == 0:
        return Flag(name="x", nargs=0, negation=draw(st.sampled_from([None, "no-x"])))
    kind = draw(st.sampled_from(list(READERS)))
    choices = CHOICES[kind] if draw(st.booleans()) else None
    return Flag(name="x", type=kind, nargs=draw(st.sampled_from([None, "?", "*", "+", 2])), choices=choices)


def parser_of(flag: Flag) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--page-size", type=int)
    if flag.is_switch:
        action = "store_true" if flag.negation is None else argparse.BooleanOptionalAction
        parser.add_argument("--x", action=action)
    else:
        parser.add_argument("--x", type=READERS[flag.type], nargs=flag.nargs, choices=flag.choices)
    return parser


def is_taken(flag: Flag, value: ArgValue) -> bool:
    argv = to_argv({"x": value}, FlagTable.of("sglang", "1", [flag]))
    try:
        parser_of(flag).parse_args([*argv, "--page-size", "1"])
    except (SystemExit, argparse.ArgumentError):
        return False
    return True


def is_comparable(flag: Flag, value: ArgValue) -> bool:
    """No item of a list may look like a flag: a list has no `--flag=value` form.

    And an empty list reads as the bare flag, which pdctl asks for as true.
    """
    if value == () and flag.nargs in (0, "?"):
        return False
    words = [str(item) for item in value] if isinstance(value, tuple) and len(value) > 1 else []
    return not any(word.startswith("-") and re.fullmatch(r"-\d+|-\d*\.\d+", word) is None for word in words)


@settings(max_examples=300, deadline=None)
@given(flags(), VALUES)
def test_a_value_fits_exactly_when_the_parser_takes_it(flag: Flag, value: ArgValue) -> None:
    if is_comparable(flag, value):
        assert (misfit(flag, value) is None) == is_taken(flag, value)
