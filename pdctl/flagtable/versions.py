"""Order of version numbers, as far as releases of engines need it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

_VERSION = re.compile(
    r"v?(?P<release>\d+(?:\.\d+)*)"
    r"(?:\.?(?P<pre>dev|a|b|rc)\.?(?P<pre_number>\d*))?"
    r"(?:\.post(?P<post>\d+))?"
    r"(?:\+.*)?"
)
_PHASES = {"dev": -4, "a": -3, "b": -2, "rc": -1, None: 0}

VersionKey = tuple[tuple[int, ...], int, int, int]


@cache
def version_key(version: str) -> VersionKey | None:
    """A key that sorts as releases follow each other: 0.5.9 < 0.5.10rc0 < 0.5.10 < 0.5.10.post1.

    A local part (`+cu129`) doesn't count. None for what is no version number.
    """
    found = _VERSION.fullmatch(version.strip())
    if found is None:
        return None
    release = [int(part) for part in found["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:  # 0.5 is 0.5.0
        release.pop()
    return (tuple(release), _PHASES[found["pre"]], int(found["pre_number"] or 0), int(found["post"] or 0))


def in_order(versions: Iterable[str]) -> tuple[str, ...]:
    """Oldest first; what is no version number comes first of all."""
    return tuple(sorted(versions, key=lambda version: version_key(version) or ((), 0, 0, 0)))


def nearest_lower(version: str, known: Iterable[str]) -> str | None:
    """The newest of `known` that isn't newer than `version`; the oldest where all are newer."""
    ordered = in_order(known)
    wanted = version_key(version)
    if wanted is None or not ordered:
        return ordered[-1] if ordered else None
    lower = [each for each in ordered if (version_key(each) or ((), 0, 0, 0)) <= wanted]
    return lower[-1] if lower else ordered[0]
