"""The nodes of one job: each through a step or, where we run ourselves, directly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pdctl.executors import answers
from pdctl.executors.calls import StartOutcome
from pdctl.executors.fan_out import FAN_OUT, at_once
from pdctl.executors.link import NodeLink
from pdctl.executors.local import LocalShell
from pdctl.executors.lost import LostNodes
from pdctl.executors.machines import Machines
from pdctl.executors.shell import Completed, LineStream, Shell, UnreachableError
from pdctl.executors.shimmed import ShimmedExecutor, spec_json
from pdctl.executors.slurm_job.container import container_options, in_container
from pdctl.executors.slurm_job.place import Allocation, HeldNode
from pdctl.executors.slurm_job.shell import SrunShell
from pdctl.executors.slurm_job.srun import SILENT_CODE, STEP_CODE, StepPlace
from pdctl.executors.slurm_job.steps import Steps
from pdctl.inventory import declared
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.topology.slurm import Slurm

START_LIMIT_S = 300.0  # a step may wait for the site's prolog, or for a container's image
ASK_LOST_EVERY_S = 5.0  # each time is a call to Slurm's controller


class JobReach:
    """`executor` does everything but start processes, which is what steps are for.

    Without a root, run directories are the nodes' own; without a folder for the logs of steps, none starts.
    """

    def __init__(
        self,
        allocation: Allocation,
        slurm: Slurm,
        environ: Mapping[str, str],
        *,
        run_root: str | None,
        logs: Path | None,
    ) -> None:
        self._slurm = slurm
        self._run_root = run_root or ""
        self._steps = None if logs is None else Steps(logs)
        self._places = {
            node.name: StepPlace(
                job_id=allocation.job_id,
                node=node.name,
                het_group=node.het_group,
                srun_args=slurm.srun_args,
                environ=environ,
            )
            for node in allocation.nodes
        }
        self._shells = {node.name: self._shell(allocation, node) for node in allocation.nodes}
        links = {
            name: NodeLink(name=name, shell=shell, python=slurm.python, root=run_root)
            for name, shell in self._shells.items()
        }
        lost = LostNodes(ask_every_s=ASK_LOST_EVERY_S)
        every = tuple(links.values())
        self._machines = Machines(links=every, link_of=links.get, fan_out=FAN_OUT, lost=lost)
        self.executor = ShimmedExecutor(links=every, link_of=links.get, find_nodes=declared, lost=lost)

    def start(self, plan: LaunchPlan, processes: Sequence[ProcessSpec]) -> tuple[StartOutcome, ...]:
        """A step for each process, all at the same time."""

        def start_on(link: NodeLink, group: Sequence[ProcessSpec]) -> list[StartOutcome]:
            link.call("list", [link.root()])  # proves once for all of them that node and shim are there
            found = at_once(lambda process: self._start_one(link, plan, process), group)
            return [_outcome(each, process) for each, process in zip(found, group, strict=True)]

        def lost(process: ProcessSpec, error: UnreachableError) -> StartOutcome:
            return _lost(process, error)

        return self._machines.grouped(processes, lambda process: process.node, start_on, lost)

    def close(self) -> None:
        """End the steps that only looked."""
        shells = [shell for shell in self._shells.values() if isinstance(shell, SrunShell)]
        at_once(SrunShell.close, shells)

    def _start_one(self, link: NodeLink, plan: LaunchPlan, process: ProcessSpec) -> StartOutcome:
        assert self._steps is not None, "processes start where their deployment lives"
        container = self._slurm.container
        place = self._places[process.node]
        hold = link.command("hold", (link.root(), plan.name, process.id))
        answer = self._steps.start(
            place.with_options(container_options(container, self._run_root)),
            process.id,
            in_container(container, self._run_root, hold),
            json.dumps(spec_json(plan, process)).encode(),
            limit_s=START_LIMIT_S,
        )
        if "started" in answer.values:
            return answers.read_start(answer, process.id, process.digest)
        return StartOutcome(process_id=process.id, error=answer.text("error"))

    def _shell(self, allocation: Allocation, node: HeldNode) -> Shell:
        if allocation.silence is not None:
            return _SilentShell(allocation.silence)
        if node.name == allocation.own_node:
            return LocalShell()
        return SrunShell(
            self._places[node.name],
            python=self._slurm.python,
            connect_timeout_s=self._slurm.command_timeout_s,
        )


class _SilentShell:
    """A node that can't be reached because Slurm doesn't answer: no call spends a time-out to learn it."""

    def __init__(self, why: str) -> None:
        self._why = why

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        raise self._fault()

    def put(self, path: str, content: bytes) -> None:
        raise self._fault()

    def follow(self, argv: Sequence[str], *, stdin: bytes = b"") -> LineStream:
        raise self._fault()

    def _fault(self) -> UnreachableError:
        return UnreachableError(self._why, code=SILENT_CODE)


def _outcome(found: StartOutcome | Exception, process: ProcessSpec) -> StartOutcome:
    match found:
        case UnreachableError():
            return _lost(process, found)
        case Exception():
            raise found
        case _:
            return found


def _lost(process: ProcessSpec, error: UnreachableError) -> StartOutcome:
    """A step that did not start is the end of it; otherwise it may run all the same."""
    if error.code == STEP_CODE:
        return StartOutcome(process_id=process.id, error=str(error))
    return StartOutcome(
        process_id=process.id, error=f"{process.node} can't be reached: {error}", is_unreachable=True
    )
