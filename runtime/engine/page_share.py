"""Fair use of the prefill pool by several receivers: pages leave it as fast as each one reads. Pure.

Without a share, one slow receiver ends up owning every page of the pool, and all others wait for it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry(Generic[Item]):
    receiver_id: int
    item: Item
    num_pages: int


class PageShare(Generic[Item]):
    """Lets items go in order per receiver. A lone receiver may fill the pool; one of several, half of it.

    Half, not the receivers' equal part: most of the time few of them are behind, and prefill should not idle.
    """

    def __init__(self, num_pages: int, *, num_receivers: Callable[[], int]) -> None:
        self._num_pages = num_pages
        self._num_receivers = num_receivers
        self._taken: Counter[int] = Counter()  # pages by receiver
        self._gone: dict[Item, _Entry[Item]] = {}
        self._held_back: dict[int, deque[_Entry[Item]]] = {}

    def add(self, receiver_id: int, item: Item, num_pages: int) -> list[Item]:
        """Returns the items that may go now: this one, or none."""
        entry = _Entry(receiver_id=receiver_id, item=item, num_pages=num_pages)
        self._held_back.setdefault(receiver_id, deque()).append(entry)
        return self._let_go(receiver_id)

    def remove(self, item: Item) -> list[Item]:
        """The item's pages are free again, or it is wanted no more. Returns the items that may go now."""
        entry = self._gone.pop(item, None)
        if entry is None:
            for receiver_id, queue in self._held_back.items():
                self._held_back[receiver_id] = deque(one for one in queue if one.item != item)
        else:
            self._taken[entry.receiver_id] -= entry.num_pages
        # Another receiver's end may widen the share of all the rest.
        return [one for receiver_id in list(self._held_back) for one in self._let_go(receiver_id)]

    def _let_go(self, receiver_id: int) -> list[Item]:
        queue = self._held_back[receiver_id]
        gone: list[Item] = []
        while queue and self._fits(receiver_id, queue[0].num_pages):
            entry = queue.popleft()
            self._taken[receiver_id] += entry.num_pages
            self._gone[entry.item] = entry
            gone.append(entry.item)
        if not queue:
            del self._held_back[receiver_id]
        return gone

    def _fits(self, receiver_id: int, num_pages: int) -> bool:
        """A receiver without pages always gets its first item, however large: it could never go otherwise."""
        taken = self._taken[receiver_id]
        limit = self._num_pages // 2 if self._num_receivers() > 1 else self._num_pages
        return not taken or taken + num_pages <= limit
