from __future__ import annotations

from runtime.router.tally import BUCKETS_S, Durations


def test_bucket_counts_what_is_at_most_its_bound() -> None:
    durations = Durations()
    for duration_s in (0.001, BUCKETS_S[0], 0.2, 10_000.0):
        durations.add(duration_s)
    buckets = dict(durations.cumulative())
    assert buckets[str(BUCKETS_S[0])] == 2
    assert buckets["0.1"] == 2
    assert buckets["0.25"] == 3
    assert buckets[str(BUCKETS_S[-1])] == 3
    assert buckets["+Inf"] == 4
    assert durations.sum_s == 0.001 + BUCKETS_S[0] + 0.2 + 10_000.0
