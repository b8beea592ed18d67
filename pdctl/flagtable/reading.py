"""What a parser makes of a value, so that two ways to write one thing compare as equal."""

from __future__ import annotations

import re
from decimal import Decimal

from pdctl.flagtable.model import Flag, ValueType
from pdctl.topology.model import ArgValue, ArgWord

_INTEGER = re.compile(r"\s*[-+]?\d[\d_]*\s*")
# sglang/srt/utils/common.py, `human_readable_int`: fractions only with the decimal suffixes.
_SUFFIXED = re.compile(r"(?P<number>\d+(?:\.\d+)?(?=[kMGT]$)|\d+)(?P<suffix>[kMGT]|[KMGT]i)")
_FACTORS = {
    **{"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12},
    **{"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40},
}


def as_read(flag: Flag | None, value: ArgValue) -> ArgValue:
    """`"64"` and `[64]` as 64, `64k` as 64000, where the flag takes such; what doesn't fit stays as it is.

    A program without a flag table (None) reads whole numbers at least.
    """
    if isinstance(value, tuple):
        is_list = flag is not None and (flag.nargs is not None or flag.repeats or flag.type is ValueType.JSON)
        if len(value) == 1 and not is_list:
            return _word(flag, value[0])
        return tuple(_word(flag, word) for word in value)
    return value if value is None or isinstance(value, bool) else _word(flag, value)


def is_integer(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None


def count(text: str) -> int | None:
    """The number that an integer or one with a suffix stands for; None for other text."""
    if is_integer(text):
        return int(text)
    found = _SUFFIXED.fullmatch(text.strip())
    return None if found is None else int(Decimal(found["number"]) * _FACTORS[found["suffix"]])


def _word(flag: Flag | None, word: ArgWord) -> ArgWord:
    kind = ValueType.INT if flag is None else flag.type
    if not isinstance(word, str):
        return word
    if kind is ValueType.INT and is_integer(word):
        return int(word)
    counted = count(word) if kind is ValueType.COUNT else None
    return word if counted is None else counted
