"""Many host names in few words, and back: `n[01-12,15],m3`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product

MAX_NAMES = 65536  # that one text may stand for: a mistyped range must not fill memory
_DIGITS = re.compile(r"[0-9]+")
_MAX_DIGITS = 9  # longer runs are no counters, but serial numbers
_RANGE = re.compile(rf"([0-9]{{1,{_MAX_DIGITS}}})(?:-([0-9]{{1,{_MAX_DIGITS}}}))?")
_PART = re.compile(r"\[([^][]*)\]|([^][]+)")
_TOP_COMMA = re.compile(r",(?![^\[]*\])")

_Series = tuple[str, str | None]  # what stands before and behind the number; None: there is no number


def fold(names: Iterable[str]) -> str:
    """Each name once. Names that differ in one number become one word; words come in order of appearance.

    >>> fold(["n01", "n02", "n03", "m3", "n15"])
    'n[01-03,15],m3'
    """
    distinct = list(dict.fromkeys(names))
    sizes = Counter(series for name in distinct for series, _ in _readings(name))
    members: dict[_Series, list[str]] = {}
    for name in distinct:
        # A name with several numbers goes where most others go; of equals, the last number counts.
        series, number = max(
            _readings(name), key=lambda reading: sizes[reading[0]], default=((name, None), "")
        )
        members.setdefault(series, []).append(number)
    return ",".join(_word(series, numbers) for series, numbers in members.items())


def unfold(text: str) -> tuple[str, ...]:
    """The names that `text` stands for, in its order; `ValueError` says what is wrong with it.

    A range keeps the width of its first number: `[08-10]` is 08, 09, 10 and `[8-10]` is 8, 9, 10.
    """
    names: list[str] = []
    for word in _TOP_COMMA.split(text):
        names.extend(_names_of(word))
        if len(names) > MAX_NAMES:
            raise ValueError(f"`{text}` stands for more than {MAX_NAMES} names")
    return tuple(names)


def is_folded(text: str) -> bool:
    """Whether `text` needs `unfold`: a plain name is none of its business."""
    return "[" in text or "]" in text


def _readings(name: str) -> list[tuple[_Series, str]]:
    """Each number in the name as the one that counts, the last one first."""
    return [
        ((name[: found.start()], name[found.end() :]), found.group())
        for found in reversed(list(_DIGITS.finditer(name)))
        if len(found.group()) <= _MAX_DIGITS
    ]


def _word(series: _Series, numbers: list[str]) -> str:
    before, behind = series
    if behind is None:
        return before
    if len(numbers) == 1:
        return before + numbers[0] + behind
    ranges: list[list[str]] = []
    for number in sorted(numbers, key=lambda number: (int(number), len(number))):
        # As `unfold` counts on, or `[8-10]` and `[08-10]` would mean the same.
        if ranges and number == str(int(ranges[-1][-1]) + 1).zfill(len(ranges[-1][0])):
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return f"{before}[{','.join(_range_text(each) for each in ranges)}]{behind}"


def _range_text(numbers: list[str]) -> str:
    return numbers[0] if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


def _names_of(word: str) -> Iterator[str]:
    parts = list(_PART.finditer(word))
    if not word or "".join(part.group() for part in parts) != word:
        raise ValueError(f"`{word}` is no name: its brackets don't match" if word else "a name is empty")
    choices = [[part[2]] if part[1] is None else _numbers_of(part[1], word) for part in parts]
    num_names = 1
    for choice in choices:
        num_names *= len(choice)
    if num_names > MAX_NAMES:
        raise ValueError(f"`{word}` stands for more than {MAX_NAMES} names")
    return ("".join(chosen) for chosen in product(*choices))


def _numbers_of(text: str, word: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise ValueError(f"`{part}` in `{word}` is no number or range like `01-12`")
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first) or len(last) < len(first):
            raise ValueError(f"`{part}` in `{word}` ends before it begins")
        if int(last) - int(first) >= MAX_NAMES:
            raise ValueError(f"`{word}` stands for more than {MAX_NAMES} names")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers
