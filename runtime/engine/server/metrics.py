"""Prometheus metrics under SGLang's names, so that dashboards made for SGLang show this engine too."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.engine.request import EngineStats

_Reading = tuple[str, str, Callable[[EngineStats], float]]  # name, help, how to read it

_COUNTERS: tuple[_Reading, ...] = (  # Prometheus adds `_total` to the names
    ("sglang:num_requests", "Sequences received", lambda stats: stats.num_requests),
    ("sglang:num_finished_requests", "Sequences completed", lambda stats: stats.num_finished),
    ("sglang:num_aborted_requests", "Sequences aborted", lambda stats: stats.num_aborted),
    ("sglang:prompt_tokens", "Prompt tokens computed or received", lambda stats: stats.num_prompt_tokens),
    ("sglang:generation_tokens", "Tokens generated", lambda stats: stats.num_generated_tokens),
    ("sglang:kv_transfer_bytes", "Bytes of KV cache sent or received", lambda stats: stats.transfer_bytes),
)
_GAUGES: tuple[_Reading, ...] = (
    ("sglang:num_running_reqs", "Sequences being computed", lambda stats: stats.num_running),
    ("sglang:num_queue_reqs", "Sequences admitted and not yet computed", lambda stats: stats.num_waiting),
    (
        "sglang:num_handshaking_reqs",
        "Rooms whose sides have not met yet",
        lambda stats: stats.num_handshaking,
    ),
    ("sglang:num_transferring_reqs", "Rooms whose KV is on its way", lambda stats: stats.num_transferring),
    ("sglang:num_free_pages", "Free pages of the KV pool", lambda stats: stats.num_free_pages),
    ("sglang:num_pages", "Pages of the KV pool", lambda stats: stats.num_pages),
    (
        "sglang:token_usage",
        "Share of the KV pool in use",
        lambda stats: 1 - stats.num_free_pages / stats.num_pages if stats.num_pages else 0,
    ),
)
_FIRST_TOKEN_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 6, 12, 30, 60, 120)
_INTER_TOKEN_BUCKETS_S = (0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1, 2, 5)
_REQUEST_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 600)


class EngineMetrics:
    """One registry per server.

    Latencies are counted as they happen; everything else is read from the engine when somebody scrapes.
    """

    def __init__(self, model_name: str, stats: Callable[[], EngineStats | None]) -> None:
        """`stats` gives None while the model is loading; only the latencies are exposed then."""
        self._registry = CollectorRegistry()

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            family = Histogram(name, text, ["model_name"], buckets=buckets, registry=self._registry)
            return family.labels(model_name=model_name)

        self._first_token = histogram(
            "sglang:time_to_first_token_seconds",
            "From a request's arrival to its first token",
            _FIRST_TOKEN_BUCKETS_S,
        )
        self._inter_token = histogram(
            "sglang:inter_token_latency_seconds",
            "Between neighbouring tokens of a sequence",
            _INTER_TOKEN_BUCKETS_S,
        )
        self._request = histogram(
            "sglang:e2e_request_latency_seconds",
            "From a request's arrival to its last token",
            _REQUEST_BUCKETS_S,
        )
        self._registry.register(_StatsCollector(model_name, stats))

    def first_token(self, elapsed_s: float) -> None:
        self._first_token.observe(elapsed_s)

    def later_tokens(self, elapsed_s: float, num_tokens: int) -> None:
        for _ in range(num_tokens):
            self._inter_token.observe(elapsed_s / num_tokens)

    def finished(self, elapsed_s: float) -> None:
        self._request.observe(elapsed_s)

    def exposition(self) -> bytes:
        """The text that `/metrics` answers, in Prometheus' format 0.0.4."""
        return generate_latest(self._registry)


class _StatsCollector(Collector):
    def __init__(self, model_name: str, stats: Callable[[], EngineStats | None]) -> None:
        self._labels = [model_name]
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        if stats is None:
            return
        for name, text, read in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=["model_name"])
            counter.add_metric(self._labels, read(stats))
            yield counter
        for name, text, read in _GAUGES:
            yield self._gauge(name, text, read(stats))
        for name, value in sorted(stats.extra.items()):
            yield self._gauge(f"sglang:{name}", "Engine-specific", value)

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        gauge = GaugeMetricFamily(name, text, labels=["model_name"])
        gauge.add_metric(self._labels, value)
        return gauge
