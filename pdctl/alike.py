"""Texts that say the same of many processes or nodes, told once: `prefill-[0-15].0 exited with code 1`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pdctl.diagnostics import Diagnostic, Excerpt
from pdctl.hostlist import fold

MAX_NOTES = 10  # of alike diagnostics: a hundred fingerprints help nobody
_PLACE = re.compile("\0([0-9]+)\0")
_NUMBER = re.compile(r"\d+")


def masked(text: str, names: Sequence[str]) -> str:
    """`text` with places in place of names, so that alike texts are equal."""
    given = (index for index, name in enumerate(names) if name)
    for index in sorted(given, key=lambda index: -len(names[index])):
        word = rf"(?<![\w.\0-]){re.escape(names[index])}(?![\w\0-]|\.\w)"
        text = re.sub(word, f"\0{index}\0", text)
    return text


def filled(text: str, names: Iterable[Sequence[str]]) -> str:
    """A masked text for all of `names`, which holds the names of each of the alike."""
    columns = [fold(column) for column in zip(*names, strict=True)]
    return _PLACE.sub(lambda found: columns[int(found[1])], text)


def folded(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Alike diagnostics as one, at the place of the first; what only some of them say stands in notes."""
    groups: dict[object, list[Diagnostic]] = {}
    for each in diagnostics:
        groups.setdefault(_likeness(each), []).append(each)
    return tuple(_merged(group) for group in groups.values())


def limited(notes: Sequence[str]) -> tuple[str, ...]:
    """As many notes as somebody reads, and how many more there are."""
    if len(notes) <= MAX_NOTES:
        return tuple(notes)
    return (*notes[:MAX_NOTES], f"and {len(notes) - MAX_NOTES} more like these")


def _likeness(diagnostic: Diagnostic) -> object:
    if not diagnostic.names:
        return diagnostic
    names = diagnostic.names
    # Times, ports and pids differ in what programs say of one and the same fault.
    lines = tuple(
        _NUMBER.sub("0", masked(line, names)) for each in diagnostic.excerpts for line in each.lines
    )
    return (
        *(diagnostic.code, diagnostic.severity, diagnostic.span, diagnostic.path, diagnostic.label),
        *(len(names), masked(diagnostic.message, names), masked(diagnostic.help or "", names), lines),
    )


def _merged(group: Sequence[Diagnostic]) -> Diagnostic:
    first = group[0]
    if len(group) == 1 or not first.names:
        return first
    names = [each.names for each in group]
    speakers: dict[str, list[Sequence[str]]] = {}
    for each in group:
        for note in each.notes:
            speakers.setdefault(masked(note, each.names), []).append(each.names)
    return replace(
        first,
        message=filled(masked(first.message, first.names), names),
        notes=limited([filled(note, of_these) for note, of_these in speakers.items()]),
        help=None if first.help is None else filled(masked(first.help, first.names), names),
        excerpts=_excerpts(group),
        names=tuple(fold(column) for column in zip(*names, strict=True)),
    )


def _excerpts(group: Sequence[Diagnostic]) -> tuple[Excerpt, ...]:
    """The first one's; the others' differ from it in numbers at most."""
    first = group[0].excerpts
    lines = [[each.lines for each in diagnostic.excerpts] for diagnostic in group]
    how = "are the same" if all(each == lines[0] for each in lines) else "differ in numbers only"
    return tuple(replace(each, title=f"{each.title}, the others {how}") for each in first)
