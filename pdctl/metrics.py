"""Counters that processes publish in Prometheus' text form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pdctl.executors.calls import ProbeAnswer, ProbeRequest
from pdctl.plan.model import ProcessSpec

METRICS_TIMEOUT_S = 2.0


def request_probes(processes: Sequence[ProcessSpec]) -> tuple[ProbeRequest, ...]:
    """One probe of each process that counts its requests, in their order."""
    return tuple(
        ProbeRequest(node=process.node, url=process.ready.sibling("/metrics"), timeout_s=METRICS_TIMEOUT_S)
        for process in processes
        if process.requests_metric and process.ready
    )


def read_requests(processes: Sequence[ProcessSpec], answers: Sequence[ProbeAnswer]) -> Mapping[str, int]:
    """Requests served since the start, by process id; processes that don't tell are left out."""
    telling = [process for process in processes if process.requests_metric and process.ready]
    counts = {
        process.id: counter_total(answer.body, process.requests_metric or "")
        for process, answer in zip(telling, answers, strict=True)
        if answer.status == 200
    }
    return {process_id: count for process_id, count in counts.items() if count is not None}


def counter_total(exposition: str, metric: str) -> int | None:
    """Sum of a metric's samples over all labels; None when it has none.

    A sample is `name{labels} value [timestamp]`; label values may hold spaces, but no line break.
    """
    found = False
    total = 0.0
    for line in exposition.splitlines():
        name, _, rest = line.partition("{")
        if rest:
            value = rest.rpartition("}")[2].split()
        else:
            name, *value = line.split() or [""]
        if name == metric and value:
            try:
                total += float(value[0])
            except ValueError:
                continue
            found = True
    return round(total) if found else None
