"""What most nodes have, and who differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


def majority(value_of: Mapping[str, str]) -> tuple[str | None, dict[str, str]]:
    """The most frequent value, the first of equals, and every node that has another one, with its own."""
    if not value_of:
        return None, {}
    usual, _count = Counter(value_of.values()).most_common(1)[0]
    return usual, {node: value for node, value in value_of.items() if value != usual}
