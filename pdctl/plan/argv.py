"""Read a command line back: which flags it gives, and with which values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Flags = Mapping[str, tuple[str, ...]]


def flags_of(argv: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Flag, without dashes, to its values; a repeated flag has those of every occurrence.

    A word is a flag when it starts with two dashes: values may start with one, such as -1.
    """
    flags: dict[str, list[str]] = {}
    current: list[str] | None = None
    for word in argv:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            current = flags.setdefault(name, [])
            current.extend([value] if equals else [])
        elif current is not None:
            current.append(word)
    return {name: tuple(values) for name, values in flags.items()}


def shown(name: str, values: tuple[str, ...] | None) -> str:
    """`--page-size 64`, or `no --page-size`."""
    return f"no --{name}" if values is None else " ".join((f"--{name}", *values))
