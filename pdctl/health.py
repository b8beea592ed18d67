"""Whether processes serve, asked over HTTP from their own nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pdctl.executors.base import NodeAccess
from pdctl.executors.calls import ProbeAnswer, ProbeRequest
from pdctl.plan.model import ProcessSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    is_ready: bool
    reason: str  # what was seen: `HTTP 503`, `connection refused`


def ask_readiness(processes: Sequence[ProcessSpec], nodes: NodeAccess) -> Mapping[str, Readiness]:
    """One probe of each process, by process id; one without a probe counts as ready while it runs."""
    probed = [process for process in processes if process.ready is not None]
    requests = [
        ProbeRequest(node=process.node, url=process.ready.url, timeout_s=process.ready.timeout_s)
        for process in probed
        if process.ready is not None
    ]
    answers = nodes.probe(requests) if requests else ()
    seen = {process.id: _readiness(answer) for process, answer in zip(probed, answers, strict=True)}
    running = Readiness(is_ready=True, reason="runs")
    return {process.id: seen.get(process.id, running) for process in processes}


def _readiness(answer: ProbeAnswer) -> Readiness:
    if answer.status is None:
        return Readiness(is_ready=False, reason=answer.error or "no answer")
    return Readiness(is_ready=answer.status == 200, reason=f"HTTP {answer.status}")
