"""The executor `slurm`: processes are steps of a job; all else of a deployment lies in a shared folder."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.base import CommandStream, Executor, LogStream
from pdctl.executors.calls import (
    ForgetOutcome,
    LogQuery,
    LookQuery,
    NodeCommand,
    NodeQuestion,
    NodeReply,
    PortAnswer,
    PortQuery,
    ProbeAnswer,
    ProbeRequest,
    Remains,
    Sight,
    Standing,
    StartOutcome,
    StopOutcome,
)
from pdctl.executors.deputy import Deputy
from pdctl.executors.link import NodeLink
from pdctl.executors.local import LocalShell
from pdctl.executors.shimmed import ShimmedExecutor
from pdctl.executors.slurm_job.commands import SlurmCommands
from pdctl.executors.slurm_job.deputy import deputy_of
from pdctl.executors.slurm_job.home import Home, home_of
from pdctl.executors.slurm_job.inventory import nodes_of
from pdctl.executors.slurm_job.look import is_of_a_past_job, look_at, with_failed_nodes
from pdctl.executors.slurm_job.past import look_back
from pdctl.executors.slurm_job.place import Allocation, PastJob, Place, is_still, own_allocation, place_of
from pdctl.executors.slurm_job.reach import JobReach
from pdctl.inventory import Inventory, declared
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.state.audit import AuditEntry
from pdctl.state.lock import LockOutcome, Owner
from pdctl.state.observed import ObservedProcess, ObservedState
from pdctl.state.pending import PendingNode
from pdctl.topology.model import Cluster
from pdctl.topology.slurm import Slurm

NO_JOB_CODE = "PD541"


def create(cluster: Cluster, environ: Mapping[str, str]) -> Executor:
    """Asks Slurm nothing: a plan of placeholders needs no job."""
    return SlurmExecutor(cluster.slurm or Slurm(), environ)


class SlurmExecutor:
    """Processes are reached through the job that runs now.

    Lock, plan and history need no job: every machine of the cluster reaches the shared folder by itself.
    """

    def __init__(self, slurm: Slurm, environ: Mapping[str, str]) -> None:
        self._slurm = slurm
        self._environ = environ
        self._commands = SlurmCommands(environ, slurm.command_timeout_s)
        self._guard = threading.Lock()
        self._reaches: dict[str, JobReach] = {}  # by the root of run directories: one per job and generation
        self._places: dict[str, Allocation] = {}  # by deployment
        self._kept: dict[Path, ShimmedExecutor] = {}  # by the root
        self._asked_about: str | None = None  # the deployment; an executor works for one at a time

    def home(self, deployment: str) -> Home:
        return home_of(
            deployment, run_dir=self._slurm.run_dir, job_name=self._slurm.job_name, environ=self._environ
        )

    def acquire(self, cluster: Cluster) -> Inventory:
        """The nodes of the deployment's job, or of the allocation that we are in; else placeholders."""
        place: Place = own_allocation(self._environ)
        if self._slurm.job_name is not None:
            place = place_of(self.home(self._slurm.job_name), self._commands, self._environ)
        if not isinstance(place, Allocation):
            return declared(cluster)
        return nodes_of(cluster, self._commands.hosts(place.job_id))

    def deputy(self, deployment: str) -> Deputy | None:
        return deputy_of(self._slurm, deployment, self._environ)

    # Processes.

    def deployments(self) -> tuple[str, ...]:
        found: set[str] = set()
        for home in self._homes():
            found.update(self._records(home).deployments())
            job = home.job() or own_allocation(self._environ)
            if job is not None:
                found.update(self._left(home, job.job_id, job.generation).deployments())
        return tuple(sorted(found))

    def observe(self, deployment: str) -> ObservedState:
        return self.look(LookQuery(deployment=deployment)).state

    def look(self, query: LookQuery) -> Sight:
        sight = self._look(query)
        if not is_of_a_past_job(sight):
            return sight
        self._places.pop(query.deployment, None)
        return self._look(query)

    def _look(self, query: LookQuery) -> Sight:
        home, place = self._place_to_look_at(query.deployment)
        match place:
            case Allocation():
                sight = look_at(query, place, self._reach(home, place).executor)
                left = self._left(home, place.job_id, place.generation)
                return with_failed_nodes(sight, self._commands, left)
            case PastJob():
                left = self._left(home, place.job_id, place.generation)
                return look_back(query, place, left, home.exit())
            case None:
                nobody = tuple(ProbeAnswer(error="its job has no nodes yet") for _ in query.probes)
                return Sight(state=ObservedState(deployment=query.deployment), answers=nobody)

    def start(self, plan: LaunchPlan, processes: Sequence[ProcessSpec]) -> tuple[StartOutcome, ...]:
        return self._running(plan.name).start(plan, processes)

    def stop(
        self, deployment: str, processes: Sequence[ObservedProcess], *, grace_s: float | None = None
    ) -> tuple[StopOutcome, ...]:
        if not processes:
            return ()
        return self._nodes(deployment).stop(deployment, processes, grace_s=grace_s)

    def prove(
        self, deployment: str, queries: Sequence[PortQuery], pids: Mapping[str, Sequence[int]]
    ) -> tuple[Remains, ...]:
        """Of a job that is over, Slurm itself has ended all there was."""
        home, place = self._place(deployment)
        if isinstance(place, PastJob) and not place.is_over:
            return (Remains(node=f"job {place.job_id}", unproven=place.why),)
        if not isinstance(place, Allocation):
            return ()
        return self._reach(home, place).executor.prove(deployment, queries, pids)

    def forget(self, deployment: str, *, keeps_plan: bool = False) -> ForgetOutcome:
        home, place = self._place(deployment)
        outcome = ForgetOutcome()
        match place:
            case Allocation():
                outcome = self._reach(home, place).executor.forget(deployment, keeps_plan=keeps_plan)
            case PastJob():
                left = self._left(home, place.job_id, place.generation)
                outcome = left.forget(deployment, keeps_plan=keeps_plan)
            case None:
                pass
        is_needed = keeps_plan or bool(outcome.kept or outcome.unreachable)
        if home.exists():
            self._records(home).forget(deployment, keeps_plan=is_needed)
            _remove_if_empty(home)
        return outcome

    def tidy(self) -> None:
        with self._guard:
            reaches, kept = tuple(self._reaches.values()), tuple(self._kept.values())
        for reach in reaches:
            reach.executor.tidy()
            reach.close()
        for each in kept:
            each.tidy()
        for home in self._homes():
            _remove_if_empty(home)

    # What lies in the shared folder. Who only asks must not make one.

    def keep_plan(self, deployment: str, content: bytes, *, pending: Sequence[PendingNode] = ()) -> None:
        self._records(self.home(deployment)).keep_plan(deployment, content, pending=pending)

    def kept_plan(self, deployment: str) -> bytes | None:
        home = self.home(deployment)
        return self._records(home).kept_plan(deployment) if home.exists() else None

    def note(self, deployment: str, entry: AuditEntry) -> None:
        self._records(self.home(deployment)).note(deployment, entry)

    def history(self, deployment: str) -> tuple[AuditEntry, ...]:
        home = self.home(deployment)
        return self._records(home).history(deployment) if home.exists() else ()

    def lock(self, deployment: str, owner: Owner, *, anywhere: bool = False) -> LockOutcome:
        return self._records(self.home(deployment)).lock(deployment, owner, anywhere=anywhere)

    def unlock(self, deployment: str, owner: Owner) -> None:
        home = self.home(deployment)
        if home.exists():
            self._records(home).unlock(deployment, owner)
            _remove_if_empty(home)

    def holder(self, deployment: str) -> Owner | None:
        home = self.home(deployment)
        return self._records(home).holder(deployment) if home.exists() else None

    def standing(self, deployment: str) -> Standing:
        home = self.home(deployment)
        return self._records(home).standing(deployment) if home.exists() else Standing()

    # Questions to nodes. Those without a deployment are for the job that we are in, or were asked about.

    def probe(self, requests: Sequence[ProbeRequest]) -> tuple[ProbeAnswer, ...]:
        return self._nodes().probe(requests) if requests else ()

    def ports(self, queries: Sequence[PortQuery]) -> tuple[PortAnswer, ...]:
        return self._nodes().ports(queries) if queries else ()

    def ask(self, verb: str, questions: Sequence[NodeQuestion]) -> tuple[NodeReply, ...]:
        try:
            return self._nodes().ask(verb, questions)
        except DiagnosticError as error:
            return tuple(NodeReply(node=each.node, faults=error.diagnostics) for each in questions)

    def logs(self, query: LogQuery) -> LogStream:
        home, place = self._place(query.deployment)
        if isinstance(place, PastJob):
            return self._left(home, place.job_id, place.generation).logs(query)
        return self._nodes(query.deployment).logs(query)

    def run(self, command: NodeCommand) -> CommandStream:
        return self._nodes().run(command)

    # Ways there.

    def _place(self, deployment: str) -> tuple[Home, Place]:
        self._asked_about = deployment
        home = self.home(deployment)
        place = place_of(home, self._commands, self._environ)
        if isinstance(place, Allocation) and place.silence is None:
            self._places[deployment] = place
        return home, place

    def _place_to_look_at(self, deployment: str) -> tuple[Home, Place]:
        """Slurm is asked once, and again when steps of the job say that it is over: people look often."""
        home, known = self.home(deployment), self._places.get(deployment)
        if known is not None and is_still(known, home.job()):
            return home, known
        return self._place(deployment)

    def _nodes(self, deployment: str | None = None) -> ShimmedExecutor:
        return self._running(deployment or self._asked_about).executor

    def _running(self, deployment: str | None) -> JobReach:
        """Raises PD541 where there is no job with nodes."""
        if deployment is not None:
            home, place = self._place(deployment)
            if isinstance(place, Allocation):
                return self._reach(home, place)
        elif (own := own_allocation(self._environ)) is not None:
            return self._reach(None, own)
        raise DiagnosticError.one(
            NO_JOB_CODE,
            "there is no job whose nodes could be reached",
            help="`pdctl up FILE` submits one; inside an allocation, its nodes are used",
        )

    def _reach(self, home: Home | None, place: Allocation) -> JobReach:
        """The same one for the same nodes: its steps serve all calls. Without a home, nothing starts."""
        root = None if home is None else self._run_root(home, place.job_id, place.generation)
        key = f"{place.job_id}.{place.generation} {root} {place.silence or ''} {len(place.nodes)}"
        with self._guard:
            if key not in self._reaches:
                logs = None if home is None else home.steps
                self._reaches[key] = JobReach(place, self._slurm, self._environ, run_root=root, logs=logs)
            return self._reaches[key]

    def _run_root(self, home: Home, job_id: int, generation: int) -> str:
        if self._slurm.node_dir is None:
            return str(home.run_root(job_id, generation))
        return f"{self._slurm.node_dir.rstrip('/')}/{home.path.name}/{job_id}.{generation}"

    def _records(self, home: Home) -> ShimmedExecutor:
        return self._on_this_machine(home.records)

    def _left(self, home: Home, job_id: int, generation: int) -> ShimmedExecutor:
        return self._on_this_machine(home.run_root(job_id, generation))

    def _on_this_machine(self, root: Path) -> ShimmedExecutor:
        with self._guard:
            if root not in self._kept:
                link = NodeLink(name=None, shell=LocalShell(), python=sys.executable, root=str(root))
                self._kept[root] = ShimmedExecutor(
                    links=[link], link_of=lambda _node: link, find_nodes=declared
                )
            return self._kept[root]

    def _homes(self) -> tuple[Home, ...]:
        """The deployment's own, where the topology names it; else all that are there."""
        one = self.home("any")
        if self._slurm.job_name is not None:
            return (one,) if one.exists() else ()
        try:
            return tuple(Home(path=path) for path in sorted(one.path.parent.iterdir()) if path.is_dir())
        except (FileNotFoundError, PermissionError):
            return ()


def _remove_if_empty(home: Home) -> None:
    """What looking has made, and what a deployment needs no more. The folder of all may be the user's own."""
    with contextlib.suppress(OSError):
        home.path.rmdir()
