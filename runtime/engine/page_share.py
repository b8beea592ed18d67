"""How much of the prefill pool one decode instance may fill: pages leave as fast as it reads, no faster.

Without a share, one slow receiver ends up owning every page of the pool, and all others wait for it.
"""

from __future__ import annotations

from collections import Counter


class PageShare:
    """Counts pages per receiver. Alone, a receiver may fill the pool; beside others, half of it."""

    def __init__(self, num_pages: int) -> None:
        self._num_pages = num_pages
        self._taken: Counter[int] = Counter()

    def take(self, receiver_id: int, num_pages: int) -> bool:
        """Count the pages and say yes, or say no. A receiver without pages always gets its first request."""
        taken = self._taken[receiver_id]
        others = self._taken.total() - taken
        limit = self._num_pages // 2 if others else self._num_pages
        if taken and taken + num_pages > limit:
            return False
        self._taken[receiver_id] += num_pages
        return True

    def give_back(self, receiver_id: int, num_pages: int) -> None:
        self._taken[receiver_id] -= num_pages
        if not self._taken[receiver_id]:
            del self._taken[receiver_id]
