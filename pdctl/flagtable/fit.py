"""Whether a value of the document is one that a flag takes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, auto

from pdctl.flagtable.model import Flag, ValueType
from pdctl.flagtable.reading import count, is_integer
from pdctl.topology.model import ArgValue, ArgWord, JsonArg
from pdctl.topology.nearest import suggest

_WANTED = {
    ValueType.INT: "an integer",
    ValueType.FLOAT: "a number",
    ValueType.JSON: "JSON",
    ValueType.COUNT: "an integer, or one with a suffix as in 64k or 2Mi",
}


class Fault(Enum):
    TYPE = auto()
    CHOICE = auto()
    NUMBER = auto()  # of values


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """What is wrong with a value; `item` is its place where it is one of a list."""

    fault: Fault
    message: str
    help: str | None
    is_slip: bool = False  # a choice, but for how its words are set apart
    item: int | None = None


def misfit(flag: Flag, value: ArgValue) -> Misfit | None:
    """The first thing that is wrong with `value`; None where the parser takes it.

    False and nothing leave a flag out, which fits every flag.
    """
    if value is None or value is False:
        return None
    return _number_of_values(flag, value) or _words(flag, value)


def _number_of_values(flag: Flag, value: ArgValue) -> Misfit | None:
    name = flag.name
    if flag.is_switch:
        if value is True:
            return None
        help = f"write `{name}: true`, or remove it"
        return _number(f"`{name}` is a switch and takes no value, found {_shown(value)}", help)
    if value is True:
        takes_none = flag.nargs in ("?", "*")
        return None if takes_none else _number(f"`{name}` needs a value", _wanted(flag))
    if isinstance(flag.nargs, int):
        num_values = len(value) if isinstance(value, tuple) else 1
        wrong = f"`{name}` takes {flag.nargs} values, found {num_values}"
        return None if num_values == flag.nargs else _number(wrong, "give it a list of as many")
    if not isinstance(value, tuple):
        return None
    if flag.type is ValueType.JSON and flag.nargs is None:
        return None
    if flag.nargs == "+" and not value:
        return _number(f"`{name}` takes one value or more, found an empty list", "remove it")
    if flag.nargs in (None, "?") and not flag.repeats and len(value) != 1:
        return _number(f"`{name}` takes one value, found a list of {len(value)}", _wanted(flag))
    return None


def _words(flag: Flag, value: ArgValue) -> Misfit | None:
    if isinstance(value, tuple):
        if flag.type is ValueType.JSON and flag.nargs is None:
            return None  # rendered as one JSON list
        found = (_word(flag, each, item) for item, each in enumerate(value))
        return next((each for each in found if each is not None), None)
    return None if value is None or isinstance(value, bool) else _word(flag, value, None)


def _word(flag: Flag, word: ArgWord, item: int | None) -> Misfit | None:
    if not _has_type(flag.type, word):
        message = f"`{flag.name}` takes {_WANTED[flag.type]}, found {_shown(word)}"
        return Misfit(fault=Fault.TYPE, message=message, help=None, item=item)
    if flag.choices is not None and str(word) not in {str(each) for each in flag.choices}:
        message = f"`{flag.name}` has no choice `{word}`"
        hint = suggest(str(word), [str(each) for each in flag.choices])
        is_slip = _letters(str(word)) in {_letters(str(each)) for each in flag.choices}
        return Misfit(fault=Fault.CHOICE, message=message, help=hint, is_slip=is_slip, item=item)
    return None


def _letters(word: str) -> str:
    """`fp-8` and `FP8` as `fp8`: no plug-in names a choice so that it differs in nothing else."""
    return "".join(each for each in word.lower() if each.isalnum())


def _has_type(kind: ValueType, word: ArgWord) -> bool:
    """Whether the parser reads it: it sees text, so `"16"` is as good as 16, and 16.0 is no integer."""
    match kind:
        case ValueType.INT:
            return not isinstance(word, JsonArg) and is_integer(str(word))
        case ValueType.COUNT:
            return not isinstance(word, JsonArg) and count(str(word)) is not None
        case ValueType.FLOAT:
            return not isinstance(word, JsonArg) and _is_float(str(word))
        case ValueType.JSON:
            return isinstance(word, JsonArg) or _is_json(str(word))
        case ValueType.TEXT | ValueType.OPAQUE:
            return True


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _number(message: str, help: str) -> Misfit:
    return Misfit(fault=Fault.NUMBER, message=message, help=help)


def _wanted(flag: Flag) -> str:
    if flag.choices is not None:
        return f"give it one of {', '.join(f'`{each}`' for each in flag.choices)}"
    return f"give it {_WANTED.get(flag.type, 'one value')}"


def _shown(value: ArgValue) -> str:
    if isinstance(value, tuple):
        return f"a list of {len(value)}"
    return f"`{value}`"
