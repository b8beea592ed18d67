"""What stands where: observation and probes of a deployment as one value."""

from __future__ import annotations

import time
from collections.abc import Mapping

from pdctl.executors.base import Executor
from pdctl.health import Readiness, ask_readiness
from pdctl.lifecycle.access import deployments, open_deployment
from pdctl.lifecycle.locking import owner_text
from pdctl.metrics import ask_requests
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.state.observed import ObservedProcess, Phase
from pdctl.status import DeploymentStatus, ProcessStatus

# What is worst in a deployment is what its own phase says.
WORST_FIRST = (Phase.FAILED, Phase.LOST, Phase.UNREADY, Phase.STARTING, Phase.EXITED, Phase.READY)


def status(name: str | None) -> tuple[DeploymentStatus, ...]:
    """One deployment, or every one that this operator has."""
    if name is None:
        opened = [open_deployment(each) for each in deployments()]
        return tuple(observe_status(each.name, each.executor, each.plan) for each in opened)
    deployment = open_deployment(name)
    deployment.require_known()
    return (observe_status(name, deployment.executor, deployment.plan),)


def observe_status(name: str, executor: Executor, plan: LaunchPlan | None) -> DeploymentStatus:
    observed = executor.observe(name)
    specs = () if plan is None else plan.processes
    alive = {process.id: process for process in observed.processes if process.phase.is_alive}
    readiness = ask_readiness([spec for spec in specs if spec.id in alive], executor)
    serving = [spec for spec in specs if spec.id in readiness and readiness[spec.id].is_ready]
    num_requests = ask_requests(serving, executor)
    running = {process.id: process for process in observed.processes}
    processes = [_planned(spec, running.get(spec.id), readiness.get(spec.id), num_requests) for spec in specs]
    planned_ids = {spec.id for spec in specs}
    processes += [
        _stray(process)
        for process in observed.processes
        if process.id not in planned_ids and (process.phase.is_alive or process.num_alive)
    ]
    holder = executor.holder(name)
    return DeploymentStatus(
        name=name,
        executor="local" if plan is None else plan.executor,
        phase=_overall([process.phase for process in processes]),
        endpoint=None if plan is None else plan.router.http,
        served_model=None if plan is None else plan.served_model,
        processes=tuple(processes),
        locked_by=None if holder is None else owner_text(holder),
        problems=tuple(f"`{node.name}` can't be reached: {node.reason}" for node in observed.unreachable),
    )


def _planned(
    spec: ProcessSpec,
    running: ObservedProcess | None,
    readiness: Readiness | None,
    num_requests: Mapping[str, int],
) -> ProcessStatus:
    if running is None:
        phase, reason = Phase.EXITED, "not running"
    elif readiness is None:
        phase, reason = running.phase, running.reason
    else:
        phase = Phase.READY if readiness.is_ready else _unready_phase(spec, running)
        reason = None if readiness.is_ready else readiness.reason
    return ProcessStatus(
        id=spec.id,
        role=spec.role.value,
        node=spec.node,
        phase=phase,
        pid=None if readiness is None or running is None else running.pid,
        ports=spec.ports,
        uptime_s=None if running is None else _uptime_s(running),
        rss_bytes=None if readiness is None or running is None else running.rss_bytes,
        num_requests=num_requests.get(spec.id),
        exit_code=None if running is None else running.exit_code,
        reason=reason,
    )


def _unready_phase(spec: ProcessSpec, running: ObservedProcess) -> Phase:
    """A process may start until its deadline; one that doesn't answer after it no longer starts."""
    deadline_s = spec.ready.deadline_s if spec.ready is not None else 0.0
    return Phase.STARTING if (_uptime_s(running) or 0.0) <= deadline_s else Phase.UNREADY


def _stray(process: ObservedProcess) -> ProcessStatus:
    return ProcessStatus(
        id=process.id,
        role=process.id.partition("-")[0],
        node=process.node,
        phase=process.phase,
        pid=process.pid,
        ports=(),
        uptime_s=_uptime_s(process),
        rss_bytes=process.rss_bytes,
        num_requests=None,
        exit_code=process.exit_code,
        reason="not in the plan",
    )


def _uptime_s(process: ObservedProcess) -> float | None:
    """By this machine's clock; a node whose clock runs ahead counts as just started."""
    if not process.phase.is_alive or process.started_at is None:
        return None
    return max(0.0, time.time() - process.started_at)


def _overall(phases: list[Phase]) -> Phase:
    return next((phase for phase in WORST_FIRST if phase in phases), Phase.EXITED)
