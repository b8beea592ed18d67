"""Patterns of host names, as SSH configurations and known_hosts files have them."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

SIGNS = frozenset("*?!")  # what makes a name a pattern


def is_meant(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns fits and none of those behind a `!` does."""
    if any(_fits(name, each[1:]) for each in patterns if each.startswith("!")):
        return False
    return any(_fits(name, each) for each in patterns if not each.startswith("!"))


def _fits(name: str, pattern: str) -> bool:
    """Brackets are signs of `[name]:port` there, and no sets as for fnmatch."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))
