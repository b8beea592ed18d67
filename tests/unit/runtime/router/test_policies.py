from __future__ import annotations

import random
from dataclasses import dataclass

from runtime.router.policies import LeastInFlight, Random, RoundRobin, make_policy
from runtime.router.settings import PolicyName


@dataclass
class Candidate:
    name: str
    num_in_flight: int = 0


def test_round_robin_takes_each_in_turn() -> None:
    policy = RoundRobin()
    candidates = [Candidate("a"), Candidate("b"), Candidate("c")]
    assert "".join(policy.choose(candidates).name for _ in range(7)) == "abcabca"


def test_round_robin_goes_on_when_one_drops_out() -> None:
    policy = RoundRobin()
    policy.choose([Candidate("a"), Candidate("b")])
    assert {policy.choose([Candidate("a")]).name for _ in range(3)} == {"a"}


def test_least_in_flight_takes_the_idlest() -> None:
    candidates = [Candidate("a", 2), Candidate("b", 1), Candidate("c", 3)]
    assert LeastInFlight().choose(candidates).name == "b"


def test_least_in_flight_takes_equals_in_turn() -> None:
    policy = LeastInFlight()
    candidates = [Candidate("a", 1), Candidate("b", 1), Candidate("c", 3)]
    assert "".join(policy.choose(candidates).name for _ in range(4)) == "abab"


def test_random_reaches_all_about_equally() -> None:
    policy = Random(random.Random(1))
    candidates = [Candidate("a"), Candidate("b"), Candidate("c")]
    chosen = [policy.choose(candidates).name for _ in range(3000)]
    assert all(900 < chosen.count(name) < 1100 for name in "abc")


def test_every_policy_name_has_a_policy() -> None:
    only = Candidate("a")
    assert all(make_policy(name).choose([only]) is only for name in PolicyName)
