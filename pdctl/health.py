"""Whether processes serve, asked over HTTP from their own nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pdctl.executors.calls import ProbeAnswer, ProbeRequest
from pdctl.plan.model import ProcessSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    is_ready: bool
    reason: str  # what was seen: `HTTP 503`, `connection refused`


def readiness_probes(processes: Sequence[ProcessSpec]) -> tuple[ProbeRequest, ...]:
    """One probe of each process that has one, in their order."""
    return tuple(
        ProbeRequest(node=process.node, url=process.ready.url, timeout_s=process.ready.timeout_s)
        for process in processes
        if process.ready is not None
    )


def read_readiness(
    processes: Sequence[ProcessSpec], answers: Sequence[ProbeAnswer]
) -> Mapping[str, Readiness]:
    """By process id, from the answers to `readiness_probes`; without a probe, to run is to be ready."""
    probed = [process for process in processes if process.ready is not None]
    seen = {process.id: _readiness(answer) for process, answer in zip(probed, answers, strict=True)}
    running = Readiness(is_ready=True, reason="runs")
    return {process.id: seen.get(process.id, running) for process in processes}


def _readiness(answer: ProbeAnswer) -> Readiness:
    if answer.status is None:
        return Readiness(is_ready=False, reason=answer.error or "no answer")
    return Readiness(is_ready=answer.status == 200, reason=f"HTTP {answer.status}")
