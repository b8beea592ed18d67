"""Stop processes, routers first, and insist that they are gone."""

from __future__ import annotations

from collections.abc import Sequence

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.events import EventSink, Stopped, Stopping
from pdctl.executors.base import Executor
from pdctl.executors.calls import StopOutcome
from pdctl.reconcile.model import Change
from pdctl.state.observed import ObservedProcess, ObservedState


def stop_processes(
    deployment: str,
    changes: Sequence[Change],
    observed: ObservedState,
    executor: Executor,
    *,
    sink: EventSink,
    passes_over_lost: bool = False,
) -> tuple[StopOutcome, ...]:
    """Stop what `changes` name. Raises `DiagnosticError` with all that could not be stopped.

    With `passes_over_lost`, a process whose node was lost is an outcome: the caller remembers it.

    Routers go first: while one ends its running requests, the engines behind it must still answer.
    """
    running = {process.id: process for process in observed.processes}
    targets = [(change, running[change.process_id]) for change in changes if change.process_id in running]
    outcomes: list[StopOutcome] = []
    for is_router in (True, False):
        wave = [each for each in targets if each[0].process_id.startswith("router-") is is_router]
        outcomes += _stop_wave(deployment, wave, executor, sink)
    faults = [
        _not_stopped(outcome)
        for outcome in outcomes
        if (outcome.error or outcome.survivors) and not (passes_over_lost and outcome.is_unreachable)
    ]
    if faults:
        raise DiagnosticError(faults)
    return tuple(outcomes)


def _stop_wave(
    deployment: str, wave: Sequence[tuple[Change, ObservedProcess]], executor: Executor, sink: EventSink
) -> tuple[StopOutcome, ...]:
    if not wave:
        return ()
    sink.on(
        *(
            Stopping(process_id=each.process_id, node=each.node, cause=each.cause, grace_s=process.grace_s)
            for each, process in wave
        )
    )
    outcomes = executor.stop(deployment, [process for _, process in wave])
    sink.on(
        *(
            Stopped(process_id=each.process_id, killed=each.killed, elapsed_s=each.elapsed_s)
            for each in outcomes
            if not each.error and not each.survivors
        )
    )
    return outcomes


def _not_stopped(outcome: StopOutcome) -> Diagnostic:
    living = ", ".join(f"{each.pid} (`{each.command}`, state {each.state})" for each in outcome.survivors)
    notes = ("KILL was sent; a process in state D waits in the kernel and dies when that wait ends",)
    return Diagnostic(
        code="PD605",
        message=f"`{outcome.process_id}` could not be stopped: {outcome.error or f'{living} still lives'}",
        notes=notes if outcome.survivors else (),
        help="run the command again later: it goes on where it stopped",
        names=(outcome.process_id,),
    )
