"""The steward: brings a deployment up inside its job, serves requests to change it, and sees to its end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pdctl.clock import Clock, SystemClock
from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.events import EventSink
from pdctl.executors.base import Executor
from pdctl.executors.deputy import Request
from pdctl.executors.slurm_job.home import Home, Tenure
from pdctl.executors.slurm_job.office import Office, open_office
from pdctl.executors.slurm_job.request import signal_lead_s
from pdctl.executors.slurm_job.whereabouts import is_same
from pdctl.lifecycle.acts_json import options_json
from pdctl.lifecycle.interrupt import Interrupted
from pdctl.lifecycle.make_true import UpOptions
from pdctl.lifecycle.planning import Planned, TopologySource, plan_file
from pdctl.lifecycle.status import observe_status
from pdctl.lifecycle.steward_acts import Acts
from pdctl.lifecycle.steward_end import (
    PREEMPTED,
    End,
    EndAsked,
    end_all,
    exit_record,
    is_preempted,
    why_asked,
)
from pdctl.lifecycle.steward_watch import judge
from pdctl.state.files import replace_file
from pdctl.state.lock import operator
from pdctl.topology.slurm import Slurm

LOOK_FOR_REQUESTS_EVERY_S = 0.3
WATCH_EVERY_S = 5.0
KILL_PATIENCE_S = 120.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

Tell = Callable[[Sequence[Diagnostic]], None]


def serve(source: TopologySource, sink: EventSink, options: UpOptions, *, tell: Tell) -> End:
    """Until the deployment is taken down, can't serve any more, or a signal comes.

    Raises `DiagnosticError` where it can't even begin; whoever waits for it is told the same.
    """
    try:
        planned = plan_file(source)
        tell(planned.warnings)
        office = _office(planned)
        _take_up(office, planned)
    except DiagnosticError as error:
        _answer_all(Home(path=Path(source.path).absolute().parent), error)
        raise
    slurm = planned.topology.cluster.slurm or Slurm()
    steward = Steward(
        office=office,
        acts=Acts(office=office, planned=planned, sink=sink, tell=tell),
        sink=sink,
        clock=SystemClock(),
        keeps_on=slurm.keep_on_failure,
        lead_s=signal_lead_s(planned.topology),
    )
    with office.beating():
        return steward.run(Request(verb="up", who=operator(), options=options_json(options)))


@dataclass(slots=True, kw_only=True)
class Steward:
    """Made for a single `run`."""

    office: Office
    acts: Acts
    sink: EventSink
    clock: Clock
    keeps_on: bool  # when it can't serve, so that it can be mended
    lead_s: float  # seconds before the time limit at which the job is told
    _told: str | None = None  # the last fault of looking

    def run(self, first: Request) -> End:
        with raising_signals() as stop_raising:
            try:
                end = self._serve(first)
            except EndAsked as asked:
                stop_raising()
                end = why_asked(asked.number, self.office.job(), lead_s=self.lead_s, now=self.clock.wall())
            stop_raising()
            return self._end(end)

    def _serve(self, first: Request) -> End:
        # Who submitted the job has left its own request; after a requeue nobody has.
        request = self._next_request() or first
        watched_at = self.clock.now()
        while True:
            if request is not None:
                end = self._perform(request)
                if end is not None:
                    return end
                watched_at = float("-inf")
            if self.clock.now() - watched_at >= WATCH_EVERY_S:
                end = self._watch()
                if end is not None:
                    return end
                watched_at = self.clock.now()
            self.clock.sleep(LOOK_FOR_REQUESTS_EVERY_S)
            request = self._next_request()

    def _next_request(self) -> Request | None:
        """A shared file system that fails for a moment must not end what serves."""
        try:
            return self.office.home.mailbox.take()
        except DiagnosticError as error:
            self._tell_news(error)
            return None

    def _tell_news(self, error: DiagnosticError) -> None:
        """What is looked at every few seconds would fill the log with one fault."""
        if str(error) != self._told:
            self._told = str(error)
            self.acts.tell(error.diagnostics)

    def _perform(self, request: Request) -> End | None:
        """An end where the request was for it."""
        try:
            self.acts.perform(request)
        except Interrupted as interrupted:
            raise _asked(interrupted) from None
        if request.verb == "down" and self.acts.is_down:
            return End(cause="down", reason="it was taken down")
        return None

    def _watch(self) -> End | None:
        """An end where it can't serve any more, and nobody wants to mend it."""
        try:
            return self._judged()
        except DiagnosticError as error:  # unknown is not gone
            self._tell_news(error)
            return None

    def _judged(self) -> End | None:
        plan = self.acts.plan
        status = observe_status(plan.name, self.acts.executor, plan)
        failed_nodes = {node.name for node in self.acts.remember_failing_nodes()}
        verdict = judge(plan, status, failed_nodes)
        if verdict.can_serve:
            self.office.note(Tenure.SERVING if verdict.why is None else Tenure.DEGRADED, verdict.why)
            return None
        why = verdict.why or "it does not serve"
        job = self.office.job()
        if job is not None and is_preempted(job):
            return PREEMPTED
        if self.keeps_on:
            self.office.note(Tenure.IDLE, why)
            return None
        return End(cause="failed", reason=f"it can't serve any more: {why}", code=1)

    def _end(self, end: End) -> End:
        office, name = self.office, self.office.deployment
        with contextlib.suppress(DiagnosticError):  # a full disk must not keep engines alive
            office.note(Tenure.ENDING, end.reason)
        end, codes = end_all(name, self.acts.executor, end, self.sink)
        self.acts.executor.tidy()
        office.leave(exit_record(end, office.allocation.job_id, office.allocation.generation, codes))
        if end.cause == PREEMPTED.cause:
            self._await_kill()
        return end

    def _await_kill(self) -> None:
        """A job that ends by itself is not put back into the queue, and counts as one that was done."""
        job = self.office.job()
        ends_at = None if job is None else job.ends_at
        while ends_at is not None and self.clock.wall() < ends_at + KILL_PATIENCE_S:
            self.clock.sleep(1.0)


@contextmanager
def raising_signals() -> Generator[Callable[[], None]]:
    """The first signal becomes `EndAsked` wherever the main thread is; all others are nothing.

    Gives a function after which no signal is anything.
    """
    is_raising = True

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal is_raising
        if is_raising:
            is_raising = False
            raise EndAsked(number)

    def stop_raising() -> None:
        nonlocal is_raising
        is_raising = False

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    try:
        yield stop_raising
    finally:
        for number, action in before.items():
            signal.signal(number, action)


def _asked(interrupted: Interrupted) -> EndAsked:
    """Acts turn a Ctrl-C into `Interrupted`; what had come was one of our signals."""
    context = interrupted.__context__
    return context if isinstance(context, EndAsked) else EndAsked(signal.SIGINT)


def _office(planned: Planned) -> Office:
    cluster = planned.topology.cluster
    if cluster.executor != "slurm":
        raise DiagnosticError.one(
            "PD542",
            f"`--foreground` works inside a Slurm job, and this topology's executor is `{cluster.executor}`",
            path="cluster.executor",
            help="leave it out: `pdctl up` returns when all serves, and what was started goes on",
        )
    return open_office(cluster.slurm or Slurm(), planned.plan.name, os.environ)


def _take_up(office: Office, planned: Planned) -> None:
    before = office.take_up()
    executor: Executor = planned.executor
    holder = executor.standing(planned.plan.name).holder
    if before is not None and holder is not None and is_same(holder, before):
        executor.unlock(planned.plan.name, holder)
    replace_file(office.home.topology, planned.document.encode())


def _answer_all(home: Home, error: DiagnosticError) -> None:
    """Where the topology lies in a job's own folder, somebody waits there for its steward."""
    if home.mailbox.requests.is_dir():
        while (request := home.mailbox.take()) is not None:
            home.mailbox.log(request.token).fail(error.diagnostics)
