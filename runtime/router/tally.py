"""Counts what the router does, and renders it for Prometheus.

The request path only adds to plain numbers: the library's own counters take a lock each, a scrape is rare.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from runtime.router.workers import Fleet

BUCKETS_S = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    1800.0,
)
PREFIX = "pdctl_router"


class Durations:
    """A histogram of seconds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def add(self, duration_s: float) -> None:
        self._counts[bisect_left(BUCKETS_S, duration_s)] += 1
        self.sum_s += duration_s

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' form: each bucket counts what is at most its bound."""
        bounds = [str(bound) for bound in BUCKETS_S] + ["+Inf"]
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip(bounds, self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return buckets


class Tally:
    """Numbers since the start."""

    def __init__(self) -> None:
        self.num_requests: Counter[tuple[str, int]] = Counter()  # by route and status
        self.num_retries: Counter[str] = Counter()  # by the role that failed
        self.durations: dict[str, Durations] = {}  # by route, whole requests
        self.num_in_flight = 0

    def begin(self) -> None:
        self.num_in_flight += 1

    def end(self, route: str, status: int, duration_s: float) -> None:
        self.num_in_flight -= 1
        self.num_requests[route, status] += 1
        durations = self.durations.get(route)
        if durations is None:
            durations = self.durations[route] = Durations()
        durations.add(duration_s)


class _Collector:
    def __init__(self, tally: Tally, fleets: Iterable[Fleet]) -> None:
        self._tally = tally
        self._fleets = tuple(fleets)

    def collect(self) -> Iterator[Metric]:
        yield from self._of_requests()
        yield from self._of_workers()

    def _of_requests(self) -> Iterator[Metric]:
        tally = self._tally
        requests = CounterMetricFamily(f"{PREFIX}_requests", "Requests answered", labels=["route", "status"])
        for (route, status), count in sorted(tally.num_requests.items()):
            requests.add_metric([route, str(status)], count)
        retries = CounterMetricFamily(
            f"{PREFIX}_retries", "Pairs replaced by another", labels=["failed_role"]
        )
        for role, count in sorted(tally.num_retries.items()):
            retries.add_metric([role], count)
        durations = HistogramMetricFamily(
            f"{PREFIX}_request_duration_seconds", "Whole request", labels=["route"]
        )
        for route, histogram in sorted(tally.durations.items()):
            durations.add_metric([route], histogram.cumulative(), histogram.sum_s)
        in_flight = GaugeMetricFamily(
            f"{PREFIX}_requests_in_flight", "Requests being answered", tally.num_in_flight
        )
        yield from (requests, retries, durations, in_flight)

    def _of_workers(self) -> Iterator[Metric]:
        labels = ["role", "worker"]
        healthy = GaugeMetricFamily(
            f"{PREFIX}_worker_healthy", "1 if the worker takes requests", labels=labels
        )
        in_flight = GaugeMetricFamily(
            f"{PREFIX}_worker_in_flight", "Exchanges with the worker", labels=labels
        )
        errors = CounterMetricFamily(
            f"{PREFIX}_worker_errors", "Exchanges that failed at the worker", labels=[*labels, "kind"]
        )
        for worker in (worker for fleet in self._fleets for worker in fleet.workers):
            names = [str(worker.address.role), worker.address.url]
            healthy.add_metric(names, float(worker.standing.is_healthy))
            in_flight.add_metric(names, worker.num_in_flight)
            for kind, count in sorted(worker.num_failures.items()):
                errors.add_metric([*names, kind], count)
        yield from (healthy, in_flight, errors)


def render_metrics(tally: Tally, fleets: Iterable[Fleet]) -> bytes:
    """The text form of everything counted, as `GET /metrics` returns it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(tally, fleets))
    return generate_latest(registry)
