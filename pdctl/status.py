"""What `pdctl status` tells, as values."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.plan.model import Endpoint, PortClaim
from pdctl.state.observed import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    id: str
    role: str
    node: str
    phase: Phase
    pid: int | None
    ports: tuple[PortClaim, ...]
    uptime_s: float | None  # None unless it runs
    rss_bytes: int | None  # of the whole process tree
    device_bytes: int | None  # of accelerators, likewise; None: not told
    num_requests: int | None  # None: not told
    exit_code: int | None
    reason: str | None  # why it is not ready, in a few words


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentStatus:
    name: str
    executor: str
    phase: Phase  # of the whole: ready when every process is
    endpoint: Endpoint | None  # of the router; None when no plan is on record
    served_model: str | None
    processes: tuple[ProcessStatus, ...]  # in the plan's order, strangers to the plan at the end
    locked_by: str | None  # an operator at work: who, since when, what for
    problems: tuple[str, ...]  # what could not be observed
