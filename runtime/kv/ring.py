"""The staging pool's space: equal slots, handed out round and round, and fairly. Pure, no lock, no memory.

Slots are equal so that none is ever too small: a ring of blocks of any size is full of gaps as soon as one
block stays, and then a large one waits for a sender that may stand still for good.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Peer = TypeVar("Peer", bound=Hashable)


class RingError(ValueError):
    """A pool that holds not even one slot; the text says what it needs."""


@dataclass(slots=True, kw_only=True, eq=False)
class Claim(Generic[Peer]):
    """Somebody's wish for a slot, and from `is_granted` to `release` the right to it."""

    peer: Peer
    slot: int | None = None

    @property
    def is_granted(self) -> bool:
        return self.slot is not None


class Ring(Generic[Peer]):
    """Grants claims in the order of their arrival.

    A peer that stands still keeps its slots for as long as its writes may land. So above the high watermark
    a peer that has slots waits, and lets those pass that have none: nobody can hold the whole ring while
    somebody else wants part of it. No holder needs another slot to finish, so every claim is granted as soon
    as its own peer, or anybody, moves.
    """

    def __init__(self, *, num_bytes: int, slot_bytes: int, high_watermark: float = 0.75) -> None:
        if slot_bytes < 1 or num_bytes < slot_bytes:
            raise RingError(f"a staging pool of {num_bytes} bytes holds no block of {slot_bytes} bytes")
        self.slot_bytes = slot_bytes
        self.num_slots = num_bytes // slot_bytes
        self._high_slots = max(1, int(high_watermark * self.num_slots))
        self._free: deque[int] = deque(range(self.num_slots))
        self._waiting: deque[Claim[Peer]] = deque()
        self._num_held: Counter[Peer] = Counter()

    @property
    def num_free(self) -> int:
        return len(self._free)

    def claim(self, peer: Peer) -> tuple[Claim[Peer], list[Claim[Peer]]]:
        """Queue for a slot. Gives the claim, and which claims are granted now: this one, or none."""
        claim = Claim(peer=peer)
        self._waiting.append(claim)
        return claim, self._grant()

    def release(self, claim: Claim[Peer]) -> list[Claim[Peer]]:
        """Give a slot back, or wait no more for one. Gives the claims that are granted now."""
        if claim.slot is None:
            self._waiting.remove(claim)  # ValueError: released twice
            return self._grant()
        self._free.append(claim.slot)
        claim.slot = None
        self._num_held[claim.peer] -= 1
        if not self._num_held[claim.peer]:
            del self._num_held[claim.peer]
        return self._grant()

    def offset(self, claim: Claim[Peer]) -> int:
        """Where a granted claim's slot begins, in bytes."""
        if claim.slot is None:
            raise ValueError("the claim is not granted")
        return claim.slot * self.slot_bytes

    def _grant(self) -> list[Claim[Peer]]:
        granted: list[Claim[Peer]] = []
        held_back: list[Claim[Peer]] = []
        while self._free and self._waiting:
            claim = self._waiting.popleft()
            num_taken = self.num_slots - len(self._free)
            if num_taken >= self._high_slots and self._num_held[claim.peer]:
                held_back.append(claim)
                continue
            claim.slot = self._free.popleft()
            self._num_held[claim.peer] += 1
            granted.append(claim)
        self._waiting.extendleft(reversed(held_back))
        return granted
