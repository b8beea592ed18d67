"""The end of a steward's deployment: why it came, and that nothing goes on after it."""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import dataclass

from pdctl.apply.stop import stop_processes
from pdctl.diagnostics import DiagnosticError
from pdctl.events import EventSink
from pdctl.executors.base import Executor
from pdctl.executors.slurm_job.home import ExitRecord
from pdctl.executors.slurm_job.job import Job
from pdctl.executors.slurm_job.states import Fate
from pdctl.lifecycle.locking import locked
from pdctl.reconcile.reconcile import stop_everything

# Beside the time at which the job asked to be told: Slurm looks at time limits twice a minute.
NEAR_LIMIT_S = 90.0
INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    cause: str  # one word
    reason: str  # as the end of a sentence whose subject is the deployment
    code: int = 0  # of the steward's process


PREEMPTED = End(cause="preempted", reason="it was preempted: its nodes are wanted for another job")


class EndAsked(KeyboardInterrupt):
    """A signal has come. As Ctrl-C, it ends whatever goes on, in good order."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def why_asked(number: int, job: Job | None, *, lead_s: float, now: float) -> End:
    """What a signal means, by what Slurm says of the job at that moment. Pure.

    Slurm sends the same TERM before a time limit, for a preemption and for `scancel`.
    """
    if number == signal.SIGINT:
        return End(cause="cancelled", reason="it was interrupted", code=INTERRUPTED)
    if job is None:
        return End(cause="cancelled", reason=f"it was ended by {signal.Signals(number).name}")
    if is_preempted(job):
        return PREEMPTED
    if job.fate in (Fate.CANCELLED, Fate.ENDING):
        return End(cause="cancelled", reason="its job was cancelled")
    if job.ends_at is not None and job.ends_at - now <= lead_s + NEAR_LIMIT_S:
        return End(cause="timeout", reason="its job reached its time limit")
    return End(cause="cancelled", reason=f"it was ended by {signal.Signals(number).name}")


def is_preempted(job: Job) -> bool:
    """With a grace, Slurm moves the end of the job forward, and tells its tasks alone to end."""
    if job.fate is Fate.PREEMPTED:
        return True
    if job.fate is not Fate.RUNNING or None in (job.ends_at, job.started_at, job.limit_s):
        return False
    assert job.ends_at is not None
    assert job.started_at is not None
    assert job.limit_s is not None
    return job.ends_at < job.started_at + job.limit_s - 5.0


def end_all(name: str, executor: Executor, end: End, sink: EventSink) -> tuple[End, dict[str, int | None]]:
    """Stop the router with its requests, then all engines; gives the exit codes of all, by process.

    Run directories stay: they tell what happened. What could not be stopped makes the end a failure.
    """
    free_own_lock(name, executor)
    try:
        with locked(name, "end", executor, sink, is_ending=True):
            observed = executor.observe(name)
            stop_processes(
                name,
                stop_everything(observed).changes,
                observed,
                executor,
                sink=sink,
                passes_over_lost=True,
            )
    except DiagnosticError as error:
        end = End(cause=end.cause, reason=f"{end.reason}; {error}", code=1)
    try:
        ended = executor.observe(name).processes
    except DiagnosticError:
        ended = ()
    return end, {each.id: each.exit_code for each in ended}


def free_own_lock(name: str, executor: Executor) -> None:
    """A signal may come between any two steps of an act, also when the lock is just taken or given back."""
    holder = executor.standing(name).holder
    if holder is not None and (holder.pid, holder.host) == (os.getpid(), socket.gethostname()):
        executor.unlock(name, holder)


def exit_record(end: End, job_id: int, generation: int, codes: dict[str, int | None]) -> ExitRecord:
    return ExitRecord(
        job_id=job_id,
        generation=generation,
        cause=end.cause,
        reason=end.reason,
        at=time.time(),
        code=end.code,
        processes=codes,
    )
