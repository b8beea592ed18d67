"""How one worker is chosen among those that take requests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from runtime.router.settings import PolicyName


class Loaded(Protocol):
    @property
    def num_in_flight(self) -> int: ...


Choice = TypeVar("Choice", bound=Loaded)


class Policy(Protocol):
    """Chooses one of at least one candidate; each role has its own instance, so it may remember."""

    def choose(self, candidates: Sequence[Choice]) -> Choice: ...


class Random:
    def __init__(self, generator: random.Random | None = None) -> None:
        self._generator = generator or random.Random()

    def choose(self, candidates: Sequence[Choice]) -> Choice:
        return candidates[int(self._generator.random() * len(candidates))]


class RoundRobin:
    def __init__(self) -> None:
        self._num_chosen = 0

    def choose(self, candidates: Sequence[Choice]) -> Choice:
        chosen = candidates[self._num_chosen % len(candidates)]
        self._num_chosen += 1
        return chosen


class LeastInFlight:
    """Fewest requests in flight; among equals in turn, else the first would get all of a quiet hour."""

    def __init__(self) -> None:
        self._in_turn = RoundRobin()

    def choose(self, candidates: Sequence[Choice]) -> Choice:
        fewest = min(candidate.num_in_flight for candidate in candidates)
        return self._in_turn.choose(
            [candidate for candidate in candidates if candidate.num_in_flight == fewest]
        )


def make_policy(name: PolicyName) -> Policy:
    match name:
        case PolicyName.RANDOM:
            return Random()
        case PolicyName.ROUND_ROBIN:
            return RoundRobin()
        case PolicyName.LEAST_IN_FLIGHT:
            return LeastInFlight()
