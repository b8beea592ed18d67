"""What stands where: observation and probes of a deployment as one value."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.base import Executor
from pdctl.executors.calls import LookQuery, Standing
from pdctl.health import Readiness, read_readiness, readiness_probes
from pdctl.hostlist import fold
from pdctl.lifecycle.access import Deployment, deployments, open_deployment, records
from pdctl.lifecycle.locking import owner_text
from pdctl.metrics import read_requests, request_probes
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.state.lock import is_dead
from pdctl.state.observed import ObservedProcess, Phase, UnreachableNode
from pdctl.state.pending import PendingNode
from pdctl.status import DeploymentStatus, ProcessStatus

# What is worst in a deployment is what its own phase says.
WORST_FIRST = (
    Phase.FAILED,
    Phase.LOST,
    Phase.UNKNOWN,
    Phase.UNREADY,
    Phase.STARTING,
    Phase.EXITED,
    Phase.READY,
)


def status(name: str | None) -> tuple[DeploymentStatus, ...]:
    """One deployment, or every one that this operator has."""
    if name is None:
        return tuple(_status_of(open_deployment(each)) for each in deployments())
    deployment = open_deployment(name)
    deployment.require_known()
    return (_status_of(deployment),)


def _status_of(deployment: Deployment) -> DeploymentStatus:
    try:
        seen = observe_status(deployment.name, deployment.executor, deployment.plan)
        return replace(seen, problems=(*seen.problems, *_remarks(deployment)))
    finally:
        deployment.executor.tidy()


def _remarks(deployment: Deployment) -> tuple[str, ...]:
    """Of who works on it inside a cluster."""
    deputy = deployment.executor.deputy(deployment.name)
    try:
        return () if deputy is None else deputy.remarks()
    except DiagnosticError as error:
        return tuple(each.message for each in error.diagnostics)


def observe_status(name: str, executor: Executor, plan: LaunchPlan | None) -> DeploymentStatus:
    """One round trip per node, and one to the node that has the lock."""
    specs = () if plan is None else plan.processes
    probes, counts = readiness_probes(specs), request_probes(specs)
    has_devices = any(spec.device_indices for spec in specs)
    query = LookQuery(deployment=name, probes=(*probes, *counts), device_memory=has_devices)
    sight = executor.look(query)
    observed = sight.state
    running = {process.id: process for process in observed.processes}
    lost = {node.name: node for node in observed.unreachable}
    is_alive = {process.id for process in observed.processes if process.phase.is_alive}
    readiness = {
        process_id: seen
        for process_id, seen in read_readiness(specs, sight.answers[: len(probes)]).items()
        if process_id in is_alive
    }
    num_requests = read_requests(specs, sight.answers[len(probes) :])
    processes = [
        _unknown(spec, lost[spec.node])
        if spec.node in lost
        else _planned(spec, running.get(spec.id), readiness.get(spec.id), num_requests)
        for spec in specs
    ]
    planned_ids = {spec.id for spec in specs}
    processes += [
        _stray(process)
        for process in observed.processes
        if process.id not in planned_ids and (process.phase.is_alive or process.num_alive)
    ]
    standing = _standing(name, executor)
    holder = standing.holder
    return DeploymentStatus(
        name=name,
        executor="local" if plan is None else plan.executor,
        phase=_overall([process.phase for process in processes]),
        endpoint=None if plan is None else plan.router.http,
        served_model=None if plan is None else plan.served_model,
        processes=tuple(processes),
        locked_by=None if holder is None or is_dead(holder) else owner_text(holder),
        problems=(*_unreachable_texts(observed.unreachable), *_pending_texts(standing.pending)),
    )


def _unreachable_texts(nodes: Sequence[UnreachableNode]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for node in nodes:
        by_reason.setdefault(node.reason, []).append(node.name)
    for reason, names in by_reason.items():
        yield f"{fold(names)} can't be reached: {reason}"


def _standing(name: str, executor: Executor) -> Standing:
    """Of the nodes that keep it, and of our own record where they can't be reached."""
    try:
        found = executor.standing(name)
    except DiagnosticError:  # none of them answers, which the problems say already
        found = Standing()
    return found if found.pending else replace(found, pending=records().pending(name))


def _pending_texts(nodes: Sequence[PendingNode]) -> Iterator[str]:
    for node in nodes:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(node.since))
        yield f"{node.name} still has to be taken down, since {since}: {node.reason}"


def _unknown(spec: ProcessSpec, lost: UnreachableNode) -> ProcessStatus:
    return ProcessStatus(
        id=spec.id,
        role=spec.role.value,
        node=spec.node,
        phase=Phase.UNKNOWN,
        pid=None,
        ports=spec.ports,
        uptime_s=None,
        rss_bytes=None,
        device_bytes=None,
        num_requests=None,
        exit_code=None,
        reason=f"its node can't be reached: {lost.reason}",
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
        uptime_s=None if running is None else running.age_s,
        rss_bytes=None if readiness is None or running is None else running.rss_bytes,
        device_bytes=None if readiness is None or running is None else running.device_bytes,
        num_requests=num_requests.get(spec.id) if readiness is not None and readiness.is_ready else None,
        exit_code=None if running is None else running.exit_code,
        reason=reason,
    )


def _unready_phase(spec: ProcessSpec, running: ObservedProcess) -> Phase:
    """A process may start until its deadline; one that doesn't answer after it no longer starts."""
    deadline_s = spec.ready.deadline_s if spec.ready is not None else 0.0
    return Phase.STARTING if (running.age_s or 0.0) <= deadline_s else Phase.UNREADY


def _stray(process: ObservedProcess) -> ProcessStatus:
    return ProcessStatus(
        id=process.id,
        role=process.id.partition("-")[0],
        node=process.node,
        phase=process.phase,
        pid=process.pid,
        ports=(),
        uptime_s=process.age_s,
        rss_bytes=process.rss_bytes,
        device_bytes=process.device_bytes,
        num_requests=None,
        exit_code=process.exit_code,
        reason="not in the plan",
    )


def _overall(phases: list[Phase]) -> Phase:
    return next((phase for phase in WORST_FIRST if phase in phases), Phase.EXITED)
