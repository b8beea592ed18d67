"""Start processes in their order, each in place of its predecessor, and wait until each serves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pdctl.apply.faults import has_ended, how_it_ended, is_late, nodes_lost, not_started
from pdctl.apply.stop import stop_processes
from pdctl.clock import Clock
from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.events import Event, EventSink, Failed, Ready, Started, Starting, Waiting
from pdctl.executors.base import Executor
from pdctl.executors.calls import LookQuery
from pdctl.health import Readiness, read_readiness, readiness_probes
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.reconcile.model import Change, Op
from pdctl.state.observed import ObservedProcess, ObservedState, UnreachableNode

FIRST_POLL_S = 0.1
SLOWEST_POLL_S = 1.0
SAY_WAITING_EVERY_S = 1.0
WATCH_EVERY_S = 5.0  # whether what is ready still lives: a hundred nodes are not asked for it in each round
EXCERPT_LINES = 15
LOST_PATIENCE_S = 60.0  # a node that is lost for longer ends the rollout


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
    is_answered: bool = True  # False: the answer to its start was lost, so it may run or not
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
    scope: Collection[str] | None = None  # ids of the processes to see to; None: all of the plan
    require_lock: Callable[[], None] = lambda: None  # raises once somebody else may work on the deployment
    _tracks: dict[str, _Track] = field(default_factory=dict[str, _Track])
    _said_at: float = 0.0
    _watched_at: float = 0.0
    _has_asked_all: bool = True  # in the last round

    def run(self, starts: Mapping[str, Change]) -> None:
        """Carry out `starts` (by process id) and return when every process of the scope is ready.

        Raises `DiagnosticError` when one fails or passes its deadline. All that failed by then are told,
        what runs goes on, and nothing more is started.
        """
        began = self._said_at = self._watched_at = self.clock.now()
        for process in self.plan.processes:
            if self.scope is not None and process.id not in self.scope:
                continue
            change = starts.get(process.id)
            self._tracks[process.id] = _Track(
                process=process, change=change, since=None if change is not None else began
            )
        if not self.options.wait:
            self.require_lock()
            self._start([track for track in self._tracks.values() if track.since is None])
            return
        pause_s = FIRST_POLL_S
        while not all(track.is_ready for track in self._tracks.values()):
            self.require_lock()
            startable = self._startable()
            if startable:
                self._start(startable)
                pause_s = FIRST_POLL_S
            self._look()
            if not self._startable() and not all(track.is_ready for track in self._tracks.values()):
                self.clock.sleep(pause_s)
                pause_s = min(2 * pause_s, SLOWEST_POLL_S)
        if not self._has_asked_all:
            self._look()  # nothing counts as up that has ended meanwhile

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
        self.sink.on(
            *(Starting(process_id=each.process_id, node=each.node, cause=each.cause) for each in changes)
        )
        outcomes = self.executor.start(self.plan, [track.process for track in tracks])
        now = self.clock.now()
        faults: list[Diagnostic] = []
        events: list[Event] = []
        for track, outcome in zip(tracks, outcomes, strict=True):
            track.since = now
            track.is_answered = not outcome.is_unreachable
            if outcome.error is None:
                node = track.process.node
                events.append(Started(process_id=track.process.id, node=node, pid=outcome.pid))
            elif track.is_answered:
                faults.append(not_started(track.process, outcome.error))
                events.append(Failed(process_id=track.process.id, reason=outcome.error))
        self.sink.on(*events)
        if faults:
            raise DiagnosticError(faults)

    def _look(self) -> None:
        """One round: which live, which serve, which are late, which can't be asked.

        It asks the nodes of what is waited for, and now and then those of all that was started.
        """
        begun = [track for track in self._tracks.values() if track.since is not None]
        waiting = [track for track in begun if not track.is_ready]
        nodes = self._nodes_to_ask(begun, waiting)
        watched = [track for track in begun if track.process.node in nodes]
        is_time_to_say = self.clock.now() - self._said_at >= SAY_WAITING_EVERY_S
        sight = self.executor.look(
            LookQuery(
                deployment=self.plan.name,
                nodes=nodes,
                probes=readiness_probes([track.process for track in waiting]),
                tail_of=_nodes_of(waiting) if is_time_to_say else {},
            )
        )
        self._require_progress(watched, sight.state)
        answers = read_readiness([track.process for track in waiting], sight.answers)
        lost = {node.name: node for node in sight.state.unreachable}
        for track in waiting:
            self._learn(track, answers[track.process.id], lost.get(track.process.node), sight.state)
        self.sink.on(
            *(
                Ready(process_id=track.process.id, elapsed_s=self._elapsed_s(track))
                for track in waiting
                if track.is_ready and track.change is not None
            )
        )
        if is_time_to_say:
            self._say_waiting([track for track in waiting if not track.is_ready], sight.tails)

    def _nodes_to_ask(self, begun: Sequence[_Track], waiting: Sequence[_Track]) -> tuple[str, ...]:
        now = self.clock.now()
        every = tuple(dict.fromkeys(each.process.node for each in begun))
        nodes = tuple(dict.fromkeys(each.process.node for each in waiting))
        if not waiting or now - self._watched_at >= WATCH_EVERY_S:
            nodes = every
        self._has_asked_all = len(nodes) == len(every)
        if self._has_asked_all:
            self._watched_at = now
        return nodes

    def _learn(
        self, track: _Track, answer: Readiness, lost: UnreachableNode | None, state: ObservedState
    ) -> None:
        if lost is not None:
            track.reason = f"`{lost.name}` unreachable since {lost.since_s:.0f} s: {lost.reason}"
            return
        if not track.is_answered:
            # The node answers again. If the start never arrived, it is asked for once more.
            track.is_answered = True
            if not _lives(state.process(track.process.id)):
                track.since = None
                return
        track.is_ready, track.reason = answer.is_ready, answer.reason

    def _require_progress(self, tracks: Sequence[_Track], state: ObservedState) -> None:
        """Raise `DiagnosticError` with all that went wrong so far, once something did."""
        lost = {node.name: node for node in state.unreachable}
        reachable = [track for track in tracks if track.process.node not in lost and track.is_answered]
        observed = {each.id: each for each in state.processes}
        ended = [track for track in reachable if not _lives(observed.get(track.process.id))]
        late = [
            track
            for track in reachable
            if track not in ended and not track.is_ready and self._elapsed_s(track) > self._deadline_s(track)
        ]
        cut_off = [track for track in tracks if track.process.node in lost]
        given_up = [track for track in cut_off if self._is_given_up(track, lost[track.process.node])]
        if not (ended or late or given_up):
            return
        tails = self._tails([*ended, *late])
        ends = {track.process.id: how_it_ended(observed.get(track.process.id)) for track in ended}
        self.sink.on(
            *(Failed(process_id=process_id, reason=how) for process_id, how in ends.items()),
            *(Failed(process_id=track.process.id, reason="not ready in time") for track in late),
            *(
                Failed(process_id=track.process.id, reason=f"`{track.process.node}` can't be reached")
                for track in cut_off
            ),
        )
        faults = [self._has_ended(track, ends[track.process.id], tails) for track in ended]
        faults += [self._is_late(track, tails) for track in late]
        faults += nodes_lost([track.process for track in cut_off], lost)
        raise DiagnosticError(faults)

    def _is_given_up(self, track: _Track, lost: UnreachableNode) -> bool:
        """A short cut is waited out; the deadline of the process may come before our patience ends."""
        is_late = not track.is_ready and self._elapsed_s(track) > self._deadline_s(track)
        return is_late or lost.since_s > LOST_PATIENCE_S

    def _has_ended(self, track: _Track, how: str, tails: Mapping[str, tuple[str, ...]]) -> Diagnostic:
        lines = tails[track.process.id]
        return has_ended(track.process, how, ran_s=self._elapsed_s(track), lines=lines)

    def _is_late(self, track: _Track, tails: Mapping[str, tuple[str, ...]]) -> Diagnostic:
        return is_late(
            track.process,
            deadline_s=self._deadline_s(track),
            seen=track.reason,
            lines=tails[track.process.id],
        )

    def _say_waiting(self, tracks: Sequence[_Track], tails: Mapping[str, tuple[str, ...]]) -> None:
        self._said_at = self.clock.now()
        self.sink.on(
            *(
                Waiting(
                    process_id=track.process.id,
                    reason=track.reason,
                    elapsed_s=self._elapsed_s(track),
                    deadline_s=self._deadline_s(track),
                    last_line=next(iter(tails.get(track.process.id, ())), None),
                )
                for track in tracks
            )
        )

    def _elapsed_s(self, track: _Track) -> float:
        return 0.0 if track.since is None else self.clock.now() - track.since

    def _deadline_s(self, track: _Track) -> float:
        if self.options.deadline_s is not None:
            return self.options.deadline_s
        return track.process.ready.deadline_s if track.process.ready is not None else float("inf")

    def _tails(self, tracks: Sequence[_Track]) -> Mapping[str, tuple[str, ...]]:
        if not tracks:
            return {}
        tail_of = _nodes_of(tracks)
        nodes = tuple(dict.fromkeys(tail_of.values()))
        query = LookQuery(deployment=self.plan.name, nodes=nodes, tail_of=tail_of, num_lines=EXCERPT_LINES)
        return self.executor.look(query).tails


def _nodes_of(tracks: Sequence[_Track]) -> dict[str, str]:
    return {track.process.id: track.process.node for track in tracks}


def _lives(observed: ObservedProcess | None) -> bool:
    return observed is not None and observed.phase.is_alive
