"""One look at the nodes of a job that runs, and at what became of nodes that it has lost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pdctl.executors.calls import LookQuery, ProbeAnswer, Sight
from pdctl.executors.shimmed import ShimmedExecutor
from pdctl.executors.slurm_job.commands import SlurmCommands
from pdctl.executors.slurm_job.faults import SlurmError
from pdctl.executors.slurm_job.job import JobNode
from pdctl.executors.slurm_job.place import Allocation
from pdctl.executors.slurm_job.srun import GONE_CODE, STEP_CODE
from pdctl.hostlist import fold
from pdctl.state.observed import ObservedProcess, Phase


def look_at(query: LookQuery, held: Allocation, nodes: ShimmedExecutor) -> Sight:
    """A plan may know nodes that the job has no more, as after Slurm has started it again elsewhere."""
    names = frozenset(held.names)
    sight = nodes.look(
        replace(
            query,
            probes=tuple(probe for probe in query.probes if probe.node in names),
            tail_of={each: node for each, node in query.tail_of.items() if node in names},
        )
    )
    found = iter(sight.answers)
    answers = tuple(
        next(found)
        if probe.node in names
        else ProbeAnswer(error=f"job {held.job_id} has no node {probe.node}")
        for probe in query.probes
    )
    return replace(sight, answers=answers, tails={**dict.fromkeys(query.tail_of, ()), **sight.tails})


def is_of_a_past_job(sight: Sight) -> bool:
    """The job ended between the question to Slurm and the one to its nodes."""
    return any(node.code == GONE_CODE for node in sight.state.unreachable)


def with_failed_nodes(sight: Sight, commands: SlurmCommands, left: ShimmedExecutor) -> Sight:
    """A node that Slurm has given up is no riddle any more: what ran there is lost, and others took over.

    `left` reads what processes wrote into the shared folder.
    """
    silent = [node.name for node in sight.state.unreachable if node.code == STEP_CODE]
    failed = {node.name: _words(node) for node in _down(silent, commands)} if silent else {}
    if not failed:
        return sight
    seen = left.look(LookQuery(deployment=sight.state.deployment)).state.processes
    lost = [_lost(process, failed[process.node]) for process in seen if process.node in failed]
    state = replace(
        sight.state,
        processes=_sorted([*sight.state.processes, *lost]),
        unreachable=tuple(node for node in sight.state.unreachable if node.name not in failed),
    )
    return replace(sight, state=state)


def _down(names: Collection[str], commands: SlurmCommands) -> list[JobNode]:
    """Those that Slurm itself says are down. While it says nothing, they are unreachable, no more."""
    try:
        return [node for node in commands.hosts(fold(names)) if "DOWN" in node.state.upper()]
    except SlurmError:
        return []


def _words(node: JobNode) -> str:
    return f"{node.name} is down" + (f": {node.reason}" if node.reason else "")


def _lost(process: ObservedProcess, why: str) -> ObservedProcess:
    """One that ended before its node did, and wrote so, has not been lost."""
    return replace(process, reason=why) if process.phase is Phase.LOST else process


def _sorted(processes: Sequence[ObservedProcess]) -> tuple[ObservedProcess, ...]:
    """A process that has moved may have ended on one node and live on another: the living one counts."""
    return tuple(sorted(processes, key=lambda process: (process.id, process.phase.is_alive)))
