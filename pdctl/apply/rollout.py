"""Start processes in their order, each in place of its predecessor, and wait until each serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pdctl.apply.faults import has_ended, how_it_ended, is_late, not_started
from pdctl.apply.stop import stop_processes
from pdctl.apply.tails import last_lines
from pdctl.clock import Clock
from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.events import EventSink, Failed, Ready, Started, Starting, Waiting
from pdctl.executors.base import Executor
from pdctl.executors.calls import StartOutcome
from pdctl.health import ask_readiness
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.reconcile.model import Change, Op
from pdctl.state.observed import ObservedProcess, ObservedState

START_THREADS = 32
FIRST_POLL_S = 0.1
SLOWEST_POLL_S = 1.0
SAY_WAITING_EVERY_S = 1.0
EXCERPT_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutOptions:
    """`deadline_s` replaces the plan's own; without `wait` everything is started and nothing is watched."""

    wait: bool = True
    deadline_s: float | None = None


@dataclass(slots=True, kw_only=True)
class _Track:
    """How far one process has come."""

    process: ProcessSpec
    change: Change | None  # that starts it; None: it runs already
    since: float | None = None  # when it was started, or first watched
    is_ready: bool = False
    reason: str = "not probed yet"


@dataclass(slots=True, kw_only=True)
class Rollout:
    """One walk from change to readiness. Made for a single `run`."""

    plan: LaunchPlan
    observed: ObservedState  # before the first change
    executor: Executor
    sink: EventSink
    clock: Clock
    options: RolloutOptions
    _tracks: dict[str, _Track] = field(default_factory=dict[str, _Track])
    _said_at: float = 0.0

    def run(self, starts: Mapping[str, Change]) -> None:
        """Carry out `starts` (by process id) and return when every process of the plan is ready.

        Raises `DiagnosticError` when one fails or passes its deadline. All that failed by then are told,
        what runs goes on, and nothing more is started.
        """
        began = self.clock.now()
        self._said_at = began
        for process in self.plan.processes:
            change = starts.get(process.id)
            self._tracks[process.id] = _Track(
                process=process, change=change, since=None if change is not None else began
            )
        if not self.options.wait:
            self._start([track for track in self._tracks.values() if track.since is None])
            return
        pause_s = FIRST_POLL_S
        while not all(track.is_ready for track in self._tracks.values()):
            startable = self._startable()
            if startable:
                self._start(startable)
                pause_s = FIRST_POLL_S
            self._look()
            if not self._startable() and not all(track.is_ready for track in self._tracks.values()):
                self.clock.sleep(pause_s)
                pause_s = min(2 * pause_s, SLOWEST_POLL_S)

    def _startable(self) -> list[_Track]:
        return [
            track
            for track in self._tracks.values()
            if track.since is None and all(self._tracks[each].is_ready for each in track.process.after)
        ]

    def _start(self, tracks: Sequence[_Track]) -> None:
        changes = [track.change for track in tracks if track.change is not None]
        replaced = [change for change in changes if change.op is Op.REPLACE]
        stop_processes(self.plan.name, replaced, self.observed, self.executor, sink=self.sink)
        for change in changes:
            self.sink.on(Starting(process_id=change.process_id, node=change.node, cause=change.cause))
        with ThreadPoolExecutor(max_workers=START_THREADS) as pool:
            outcomes = list(pool.map(self._start_one, tracks))
        now = self.clock.now()
        faults: list[Diagnostic] = []
        for track, outcome in zip(tracks, outcomes, strict=True):
            track.since = now
            if outcome.error is not None:
                faults.append(not_started(track.process, outcome.error))
                self._say_failed(track, outcome.error)
            else:
                self.sink.on(Started(process_id=track.process.id, node=track.process.node, pid=outcome.pid))
        if faults:
            raise DiagnosticError(faults)

    def _start_one(self, track: _Track) -> StartOutcome:
        return self.executor.start(self.plan, track.process)

    def _look(self) -> None:
        """One round: which live, which serve, which are late."""
        watched = [track for track in self._tracks.values() if track.since is not None]
        self._require_alive(watched)
        waiting = [track for track in watched if not track.is_ready]
        answers = ask_readiness([track.process for track in waiting], self.executor)
        for track in waiting:
            answer = answers[track.process.id]
            track.is_ready, track.reason = answer.is_ready, answer.reason
            if track.is_ready and track.change is not None:
                self.sink.on(Ready(process_id=track.process.id, elapsed_s=self._elapsed_s(track)))
        waiting = [track for track in waiting if not track.is_ready]
        self._require_in_time(waiting)
        self._say_waiting(waiting)

    def _require_alive(self, tracks: Sequence[_Track]) -> None:
        observed = {each.id: each for each in self.executor.observe(self.plan.name).processes}
        ended = [track for track in tracks if not _lives(observed.get(track.process.id))]
        if not ended:
            return
        tails = self._tails(ended, num_lines=EXCERPT_LINES)
        faults: list[Diagnostic] = []
        for track in ended:
            how = how_it_ended(observed.get(track.process.id))
            self._say_failed(track, how)
            faults.append(
                has_ended(track.process, how, ran_s=self._elapsed_s(track), lines=tails[track.process.id])
            )
        raise DiagnosticError(faults)

    def _require_in_time(self, tracks: Sequence[_Track]) -> None:
        late = [track for track in tracks if self._elapsed_s(track) > self._deadline_s(track)]
        if not late:
            return
        tails = self._tails(late, num_lines=EXCERPT_LINES)
        faults: list[Diagnostic] = []
        for track in late:
            self._say_failed(track, "not ready in time")
            faults.append(
                is_late(
                    track.process,
                    deadline_s=self._deadline_s(track),
                    seen=track.reason,
                    lines=tails[track.process.id],
                )
            )
        raise DiagnosticError(faults)

    def _say_failed(self, track: _Track, reason: str) -> None:
        self.sink.on(Failed(process_id=track.process.id, reason=reason))

    def _say_waiting(self, tracks: Sequence[_Track]) -> None:
        now = self.clock.now()
        if not tracks or now - self._said_at < SAY_WAITING_EVERY_S:
            return
        self._said_at = now
        tails = self._tails(tracks, num_lines=1)
        for track in tracks:
            self.sink.on(
                Waiting(
                    process_id=track.process.id,
                    reason=track.reason,
                    elapsed_s=self._elapsed_s(track),
                    deadline_s=self._deadline_s(track),
                    last_line=next(iter(tails[track.process.id]), None),
                )
            )

    def _elapsed_s(self, track: _Track) -> float:
        return self.clock.now() - (track.since or 0.0)

    def _deadline_s(self, track: _Track) -> float:
        if self.options.deadline_s is not None:
            return self.options.deadline_s
        return track.process.ready.deadline_s if track.process.ready is not None else float("inf")

    def _tails(self, tracks: Sequence[_Track], *, num_lines: int) -> Mapping[str, tuple[str, ...]]:
        node_of = {track.process.id: track.process.node for track in tracks}
        return last_lines(self.executor, self.plan.name, node_of, num_lines=num_lines)


def _lives(observed: ObservedProcess | None) -> bool:
    return observed is not None and observed.phase.is_alive
