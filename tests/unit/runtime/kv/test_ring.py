"""Slots are never shared and never lost; all claims are granted in the end, whoever stands still."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runtime.kv.ring import Claim, Ring, RingError

_NUM_SLOTS = 8


def _ring(num_slots: int = _NUM_SLOTS) -> Ring[str]:
    return Ring(num_bytes=100 * num_slots + 50, slot_bytes=100)


def test_slots_are_handed_out_round_and_round():
    ring = _ring(4)
    offsets = []
    for _ in range(6):
        claim, granted = ring.claim("one")
        assert granted == [claim]
        offsets.append(ring.offset(claim))
        ring.release(claim)
    assert offsets == [0, 100, 200, 300, 0, 100]


def test_a_slot_that_stays_is_passed_by():
    ring = _ring(4)
    stays, _ = ring.claim("stuck")
    slots = set()
    for _ in range(8):
        claim, _ = ring.claim("one")
        slots.add(claim.slot)
        ring.release(claim)
    assert slots == {1, 2, 3}
    assert stays.slot == 0


def test_a_peer_that_keeps_its_slots_leaves_some_to_others_for_ever():
    ring = _ring()
    stuck = [ring.claim("stuck")[0] for _ in range(100)]
    assert sum(claim.is_granted for claim in stuck) == 6, "three quarters, the high watermark"
    for n in range(1000):
        claim, granted = ring.claim(f"peer {n % 3}")
        assert granted == [claim]
        assert ring.release(claim) == []


def test_claims_are_granted_in_order():
    ring = _ring(1)
    claims = [ring.claim(f"peer {n}")[0] for n in range(4)]
    for n in range(3):
        assert ring.release(claims[n]) == [claims[n + 1]]


def test_a_lone_peer_is_served_even_by_one_slot():
    ring = _ring(1)
    first, _ = ring.claim("one")
    second, granted = ring.claim("one")
    assert granted == []
    assert ring.release(first) == [second]


def test_a_claim_that_is_withdrawn_makes_way():
    ring = _ring(1)
    held, _ = ring.claim("one")
    gone, _ = ring.claim("gone")
    waits, _ = ring.claim("next")
    assert ring.release(gone) == []
    assert ring.release(held) == [waits]
    with pytest.raises(ValueError, match="not granted"):
        ring.offset(gone)


def test_a_slot_is_not_released_twice():
    ring = _ring(2)
    claim, _ = ring.claim("one")
    ring.release(claim)
    with pytest.raises(ValueError, match="not in deque"):
        ring.release(claim)


@pytest.mark.parametrize(("num_bytes", "slot_bytes"), [(99, 100), (0, 100), (100, 0)])
def test_a_pool_without_a_slot_is_told_with_the_size_that_it_needs(num_bytes, slot_bytes):
    with pytest.raises(RingError, match=f"{num_bytes} bytes holds no block of {slot_bytes} bytes"):
        Ring(num_bytes=num_bytes, slot_bytes=slot_bytes)


class StagingPool(RuleBasedStateMachine):
    """Peers claim and release in any order; some stand still, for as long as the machine likes."""

    def __init__(self) -> None:
        super().__init__()
        self.ring: Ring[int] = Ring(num_bytes=_NUM_SLOTS, slot_bytes=1)
        self.waiting: list[Claim[int]] = []
        self.out: list[Claim[int]] = []

    def _granted(self, claims: list[Claim[int]]) -> None:
        for claim in claims:
            self.waiting.remove(claim)
            self.out.append(claim)

    @rule(peer=st.integers(0, 4))
    def claim(self, peer: int) -> None:
        claim, granted = self.ring.claim(peer)
        self.waiting.append(claim)
        self._granted(granted)

    @precondition(lambda self: self.out)
    @rule(drawn=st.data())
    def release(self, drawn: st.DataObject) -> None:
        claim = self.out.pop(drawn.draw(st.integers(0, len(self.out) - 1)))
        self._granted(self.ring.release(claim))

    @precondition(lambda self: self.waiting)
    @rule(drawn=st.data())
    def withdraw(self, drawn: st.DataObject) -> None:
        claim = self.waiting.pop(drawn.draw(st.integers(0, len(self.waiting) - 1)))
        self._granted(self.ring.release(claim))

    @invariant()
    def no_slot_has_two_holders(self) -> None:
        slots = [claim.slot for claim in self.out]
        assert len(set(slots)) == len(slots)
        assert set(slots) <= set(range(_NUM_SLOTS))
        assert self.ring.num_free == _NUM_SLOTS - len(slots)

    @invariant()
    def who_has_nothing_waits_only_for_a_full_ring(self) -> None:
        holders = {claim.peer for claim in self.out}
        waits = any(claim.peer not in holders for claim in self.waiting)
        assert not waits or not self.ring.num_free

    def teardown(self) -> None:
        """Whatever happened: when holders go on, everybody is served."""
        while self.out:
            self._granted(self.ring.release(self.out.pop(0)))
        assert not self.waiting
        assert self.ring.num_free == _NUM_SLOTS


TestStagingPool = StagingPool.TestCase
TestStagingPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
