"""What a steward does for those who ask: the same acts as an operator's, told into their mailbox."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.events import Event, EventSink
from pdctl.executors.base import Executor
from pdctl.executors.deputy import Request
from pdctl.executors.slurm_job.bad_nodes import bad_nodes_of
from pdctl.executors.slurm_job.home import Tenure
from pdctl.executors.slurm_job.job import JobNode
from pdctl.executors.slurm_job.mailbox import EventLog
from pdctl.executors.slurm_job.office import Office
from pdctl.fields import FieldError
from pdctl.lifecycle.access import Deployment
from pdctl.lifecycle.acts_json import down_json, options_from, up_json
from pdctl.lifecycle.make_true import make_true
from pdctl.lifecycle.planning import Planned, TopologySource, plan_file
from pdctl.lifecycle.take_down import take_down
from pdctl.lifecycle.targets import instances_of
from pdctl.plan.model import LaunchPlan
from pdctl.state.files import replace_file


@dataclass(slots=True, kw_only=True)
class Acts:
    """On one deployment, one at a time. `planned` is what should run."""

    office: Office
    planned: Planned
    sink: EventSink
    tell: Callable[[Sequence[Diagnostic]], None]
    is_down: bool = False
    _remembered: set[str] = field(default_factory=set[str])  # nodes that failed, by name

    @property
    def plan(self) -> LaunchPlan:
        return self.planned.plan

    @property
    def executor(self) -> Executor:
        return self.planned.executor

    def perform(self, request: Request) -> None:
        """Answer a request; faults are its answer. Only an interruption leaves."""
        log = self.office.home.mailbox.log(request.token)
        try:
            log.finish(self._performed(request, _Both(first=self.sink, second=log)))
        except DiagnosticError as error:
            self.tell(error.diagnostics)
            log.fail(error.diagnostics)
        except FieldError as error:
            log.fail([_unreadable(error)])
        except BaseException:
            log.fail([_ended_meanwhile(request)])
            raise

    def _performed(self, request: Request, sink: EventSink) -> dict[str, object]:
        match request.verb:
            case "up":
                return self._up(request, sink)
            case "restart":
                outcome = make_true(
                    self.plan,
                    self.executor,
                    sink,
                    options_from(request.options),
                    verb="restart",
                    restart_ids=instances_of(self.plan, request.ids),
                )
                return up_json(outcome)
            case "down":
                self.office.note(Tenure.ENDING)
                deployment = Deployment(name=self.plan.name, executor=self.executor, plan=self.plan)
                outcome = take_down(deployment, sink, keeps_history=True)
                self.is_down = not outcome.leftovers  # lost nodes are the cluster's to see to
                return down_json(outcome)

    def _up(self, request: Request, sink: EventSink) -> dict[str, object]:
        if request.document is not None:
            self.planned = self._replanned(request.document)
        self.office.note(Tenure.STARTING)
        return up_json(make_true(self.plan, self.executor, sink, options_from(request.options), verb="up"))

    def _replanned(self, document: str) -> Planned:
        """A topology that can't be planned leaves the one in force as it is."""
        home = self.office.home
        draft = home.path / "topology.next.json"
        replace_file(draft, document.encode())
        try:
            planned = plan_file(TopologySource(path=str(draft)))
            draft.replace(home.topology)
        finally:
            draft.unlink(missing_ok=True)
        before = self.planned.executor
        before.tidy()
        return planned

    def remember_failing_nodes(self) -> tuple[JobNode, ...]:
        """Nodes that Slurm has given up; the next job does without them for a while."""
        failing = self.office.failing_nodes()
        known = bad_nodes_of(self.planned.topology.cluster.slurm, os.environ)
        for node in failing:
            if node.name not in self._remembered:
                self._remembered.add(node.name)
                known.remember(
                    node.name,
                    f"Slurm found it {node.state}" + (f": {node.reason}" if node.reason else ""),
                    now=time.time(),
                    deployment=self.plan.name,
                    job_id=self.office.allocation.job_id,
                )
        return failing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Both:
    """The steward's own screen, and the mailbox of whoever asked."""

    first: EventSink
    second: EventLog

    def on(self, *events: Event) -> None:
        self.first.on(*events)
        self.second.on(*events)


def _unreadable(error: FieldError) -> Diagnostic:
    return Diagnostic(
        code="PD546",
        message=f"the operator's pdctl and the one in the job don't understand each other: {error}",
        help="use one version of pdctl at both places",
    )


def _ended_meanwhile(request: Request) -> Diagnostic:
    return Diagnostic(
        code="PD617",
        message=f"the job was told to end before `{request.verb}` was done",
        notes=("what it had started is stopped",),
        help="`pdctl status` tells why it ended",
    )
