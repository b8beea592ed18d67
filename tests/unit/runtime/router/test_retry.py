from __future__ import annotations

import pytest

from runtime.router.retry import asks_for_retry, backoff_s
from runtime.router.settings import RetrySettings

SETTINGS = RetrySettings(
    max_attempts=5, initial_backoff_s=0.05, max_backoff_s=0.2, multiplier=1.5, jitter=0.2
)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_busy_or_broken_worker_asks_for_a_retry(status: int) -> None:
    assert asks_for_retry(status)


@pytest.mark.parametrize("status", [200, 302, 400, 401, 404, 413, 422])
def test_fault_of_the_client_does_not(status: int) -> None:
    assert not asks_for_retry(status)


def test_delay_grows_up_to_its_bound() -> None:
    delays = [backoff_s(SETTINGS, num_failed=number, chance=0.5) for number in (1, 2, 3, 20)]
    assert delays == pytest.approx([0.05, 0.075, 0.1125, 0.2])


def test_jitter_spreads_the_delay_both_ways() -> None:
    assert backoff_s(SETTINGS, num_failed=1, chance=0.0) == pytest.approx(0.04)
    assert backoff_s(SETTINGS, num_failed=1, chance=1.0) == pytest.approx(0.06)
