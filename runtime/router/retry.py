"""When a pair of workers that failed is replaced by another, and after what delay."""

from __future__ import annotations

from runtime.router.settings import RetrySettings

RETRYABLE_STATUSES = frozenset({408, 429})


def asks_for_retry(status: int) -> bool:
    """The worker is at fault or busy. Other 4xx are the client's own and would come back from every pair."""
    return status >= 500 or status in RETRYABLE_STATUSES


def backoff_s(settings: RetrySettings, *, num_failed: int, chance: float) -> float:
    """Seconds to wait after failure number `num_failed` in a row, from 1; `chance` is random in 0..1."""
    delay_s = min(
        settings.initial_backoff_s * settings.multiplier ** (num_failed - 1), settings.max_backoff_s
    )
    return delay_s * (1 + settings.jitter * (2 * chance - 1))
