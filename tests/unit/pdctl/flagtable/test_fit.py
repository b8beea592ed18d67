from __future__ import annotations

import pytest

from pdctl.flagtable.fit import Fault, misfit
from pdctl.flagtable.model import Flag, ValueType
from pdctl.topology.model import ArgValue, JsonArg

TEXT = Flag(name="x")
INT = Flag(name="x", type=ValueType.INT)
FLOAT = Flag(name="x", type=ValueType.FLOAT)
JSON = Flag(name="x", type=ValueType.JSON)
COUNT = Flag(name="x", type=ValueType.COUNT)
OPAQUE = Flag(name="x", type=ValueType.OPAQUE)
SWITCH = Flag(name="x", nargs=0)
MAYBE = Flag(name="x", nargs="?")
PAIR = Flag(name="x", nargs=2)
MANY = Flag(name="x", type=ValueType.INT, nargs="+")
ANY = Flag(name="x", nargs="*")
REPEATED = Flag(name="x", repeats=True)
WORDS = Flag(name="x", choices=("auto", "deepep"))
NUMBERS = Flag(name="x", type=ValueType.INT, choices=(16, 32))


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        *((flag, left_out) for flag in (INT, SWITCH, MANY, WORDS) for left_out in (None, False)),
        *((TEXT, value) for value in ("a", 1, 0.5, JsonArg('{"a":1}'))),
        *((INT, value) for value in (1, -1, "16", "-1")),
        *((FLOAT, value) for value in (1, 0.9, "1e-5", "inf")),
        *((JSON, value) for value in (JsonArg("{}"), '{"a": 1}', "[]", 3, ("a", JsonArg("{}")), ())),
        *((COUNT, value) for value in (64, "64k", "1.5M", "2Mi", "-1")),
        (OPAQUE, "decode=full"),
        (SWITCH, True),
        *((MAYBE, value) for value in (True, "a")),
        *((MANY, value) for value in (1, (1, 2), "3")),
        *((ANY, value) for value in (True, (), "a", ("a", "b"))),
        (REPEATED, ("a", "b")),
        (TEXT, ("a",)),
        (PAIR, ("a", "b")),
        (WORDS, "deepep"),
        *((NUMBERS, value) for value in (16, "32")),
    ],
)
def test_what_the_parser_takes_fits(flag: Flag, value: ArgValue) -> None:
    assert misfit(flag, value) is None


@pytest.mark.parametrize(
    ("flag", "value", "fault", "message"),
    [
        (INT, "many", Fault.TYPE, "`x` takes an integer, found `many`"),
        (INT, 16.0, Fault.TYPE, "`x` takes an integer, found `16.0`"),
        (INT, JsonArg("{}"), Fault.TYPE, "`x` takes an integer, found `{}`"),
        (FLOAT, "most", Fault.TYPE, "`x` takes a number, found `most`"),
        (JSON, "{a: 1}", Fault.TYPE, "`x` takes JSON, found `{a: 1}`"),
        (
            COUNT,
            "64kB",
            Fault.TYPE,
            "`x` takes an integer, or one with a suffix as in 64k or 2Mi, found `64kB`",
        ),
        (
            COUNT,
            "1.5Mi",
            Fault.TYPE,
            "`x` takes an integer, or one with a suffix as in 64k or 2Mi, found `1.5Mi`",
        ),
        (WORDS, "deepp", Fault.CHOICE, "`x` has no choice `deepp`"),
        (NUMBERS, 64, Fault.CHOICE, "`x` has no choice `64`"),
        (SWITCH, "yes", Fault.NUMBER, "`x` is a switch and takes no value, found `yes`"),
        (INT, True, Fault.NUMBER, "`x` needs a value"),
        (MANY, True, Fault.NUMBER, "`x` needs a value"),
        (MANY, (), Fault.NUMBER, "`x` takes one value or more, found an empty list"),
        (PAIR, "a", Fault.NUMBER, "`x` takes 2 values, found 1"),
        (TEXT, ("a", "b"), Fault.NUMBER, "`x` takes one value, found a list of 2"),
    ],
)
def test_what_the_parser_refuses_is_said(flag: Flag, value: ArgValue, fault: Fault, message: str) -> None:
    found = misfit(flag, value)
    assert found is not None
    assert (found.fault, found.message) == (fault, message)


def test_one_item_of_a_list_is_named_by_its_place() -> None:
    found = misfit(MANY, (1, "two"))
    assert found is not None
    assert (found.item, found.message) == (1, "`x` takes an integer, found `two`")


@pytest.mark.parametrize(
    ("flag", "value", "hint"),
    [
        (WORDS, "deepp", "did you mean `deepep`?"),
        (WORDS, "zzz", "known here: `auto`, `deepep`"),
        (WORDS, True, "give it one of `auto`, `deepep`"),
        (FLOAT, True, "give it a number"),
    ],
)
def test_the_hint_says_what_to_write(flag: Flag, value: ArgValue, hint: str) -> None:
    found = misfit(flag, value)
    assert found is not None
    assert found.help == hint


def test_a_choice_whose_words_are_set_apart_otherwise_is_a_slip() -> None:
    flag = Flag(name="quantization", choices=("fp8", "flashinfer_cutlass"))
    slips = {word: misfit(flag, word) for word in ("fp-8", "flashinfer-cutlass", "w8a8")}
    assert {word: found.is_slip for word, found in slips.items() if found is not None} == {
        "fp-8": True,
        "flashinfer-cutlass": True,
        "w8a8": False,
    }
