"""A cluster and a clock that tests own: processes come up, fail or hang as a test says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from pdctl.compiler import compile_plan
from pdctl.events import Event
from pdctl.executors.calls import (
    CommandOutput,
    LogLine,
    LogQuery,
    LookQuery,
    NodeCommand,
    PortAnswer,
    PortQuery,
    ProbeAnswer,
    ProbeRequest,
    Sight,
    StartOutcome,
    StopOutcome,
)
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.state.observed import ObservedProcess, ObservedState, Phase, UnreachableNode


@dataclass
class ScriptedClock:
    """Time passes only when somebody sleeps."""

    seconds: float = 1000.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return 1_700_000_000.0 + self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Script:
    """The life of one process: serves after `ready_after_s`, ends after `ends_after_s`."""

    ready_after_s: float | None = 1.0
    ends_after_s: float | None = None
    exit_code: int = 1
    start_error: str | None = None
    lines: tuple[str, ...] = ()


@dataclass
class Cut:
    """A node that can't be reached for a while, by the clock."""

    begins: float
    ends: float


@dataclass
class ScriptedCluster:
    """Answers as nodes would, from scripts and the clock; it notes what it was asked to do."""

    clock: ScriptedClock
    scripts: dict[str, Script] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    taken: dict[int, PortAnswer] = field(default_factory=dict)
    outputs: dict[str, tuple[CommandOutput, ...]] = field(default_factory=dict)
    commands: list[NodeCommand] = field(default_factory=list)
    canary: list[ProbeAnswer] = field(default_factory=list)
    survivors: dict[str, StopOutcome] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    cuts: dict[str, Cut] = field(default_factory=dict)
    looked_at: list[tuple[str, ...] | None] = field(default_factory=list)
    asked_ports: list[int] = field(default_factory=list)

    def deployments(self) -> tuple[str, ...]:
        return ("test",)

    def observe(self, deployment: str) -> ObservedState:
        lost = self._lost_now()
        return ObservedState(
            deployment=deployment,
            processes=tuple(self._observed(each) for each in self.started if "n1" not in lost),
            unreachable=tuple(
                UnreachableNode(name=node, reason="no route to host", since_s=self.clock.now() - since)
                for node, since in lost.items()
            ),
        )

    def _observed(self, process_id: str) -> ObservedProcess:
        script = self.scripts.get(process_id, Script())
        age_s = self.clock.now() - self.started[process_id]
        if script.ends_after_s is not None and age_s >= script.ends_after_s:
            return ObservedProcess(
                id=process_id, node="n1", phase=Phase.FAILED, exit_code=script.exit_code, digest="d"
            )
        return ObservedProcess(id=process_id, node="n1", phase=Phase.STARTING, digest="d", num_alive=1)

    def look(self, query: LookQuery) -> Sight:
        self.looked_at.append(query.nodes)
        tails = {
            process_id: self.scripts.get(process_id, Script()).lines[-query.num_lines :]
            for process_id in query.tail_of
        }
        return Sight(state=self.observe(query.deployment), answers=self.probe(query.probes), tails=tails)

    def start(self, plan: LaunchPlan, processes: Sequence[ProcessSpec]) -> tuple[StartOutcome, ...]:
        return tuple(self._start_one(process) for process in processes)

    def _start_one(self, process: ProcessSpec) -> StartOutcome:
        script = self.scripts.get(process.id, Script())
        self.calls.append(f"start {process.id}")
        if process.node in self._lost_now():
            return StartOutcome(process_id=process.id, error="lost", is_unreachable=True)
        if script.start_error is not None:
            return StartOutcome(process_id=process.id, error=script.start_error)
        self.started[process.id] = self.clock.now()
        if process.ready is not None:
            self.urls[process.ready.url] = process.id
        return StartOutcome(process_id=process.id, run_id="r1", pid=4242)

    def _lost_now(self) -> dict[str, float]:
        """Nodes that are lost at this moment, and since when."""
        now = self.clock.now()
        return {node: cut.begins for node, cut in self.cuts.items() if cut.begins <= now < cut.ends}

    def stop(
        self, deployment: str, processes: Sequence[ObservedProcess], *, grace_s: float | None = None
    ) -> tuple[StopOutcome, ...]:
        self.calls.append("stop " + " ".join(process.id for process in processes))
        for process in processes:
            self.started.pop(process.id, None)
        return tuple(
            self.survivors.get(process.id, StopOutcome(process_id=process.id, was_alive=True, elapsed_s=0.5))
            for process in processes
        )

    def probe(self, requests: Sequence[ProbeRequest]) -> tuple[ProbeAnswer, ...]:
        return tuple(self._answer(request) for request in requests)

    def _answer(self, request: ProbeRequest) -> ProbeAnswer:
        if request.method == "POST":
            return self.canary.pop(0)
        process_id = self.urls.get(request.url)
        if process_id is None or process_id not in self.started:
            return ProbeAnswer(error="connection refused")
        script = self.scripts.get(process_id, Script())
        age_s = self.clock.now() - self.started[process_id]
        if script.ready_after_s is None or age_s < script.ready_after_s:
            return ProbeAnswer(status=503)
        return ProbeAnswer(status=200)

    def ports(self, queries: Sequence[PortQuery]) -> tuple[PortAnswer, ...]:
        self.asked_ports += [query.port for query in queries]
        return tuple(self.taken.get(query.port, PortAnswer(query=query)) for query in queries)

    def logs(self, query: LogQuery) -> LineStream:
        return LineStream(
            [
                LogLine(process_id=process_id, run_id="r1", text=line)
                for process_id in query.node_of
                for line in self.scripts.get(process_id, Script()).lines[-(query.tail or 0) :]
            ]
        )

    def run(self, command: NodeCommand) -> LineStream:
        self.calls.append(f"run {command.argv[-1]} on {command.node}")
        self.commands.append(command)
        return LineStream(list(self.outputs[command.argv[-1]]))


@dataclass
class LineStream:
    items: list

    def __iter__(self) -> Iterator:
        return iter(self.items)

    def close(self) -> None:
        self.items = []


@dataclass
class EventList:
    events: list[Event] = field(default_factory=list)

    def on(self, *events: Event) -> None:
        self.events.extend(events)

    def text(self) -> list[str]:
        """Kinds and processes, without the waiting in between."""
        return [
            f"{type(event).__name__.lower()} {getattr(event, 'process_id', '')}".strip()
            for event in self.events
            if type(event).__name__ != "Waiting"
        ]


@pytest.fixture
def clock() -> ScriptedClock:
    return ScriptedClock()


@pytest.fixture
def cluster(clock) -> ScriptedCluster:
    return ScriptedCluster(clock=clock)


@pytest.fixture
def cut() -> type[Cut]:
    return Cut


@pytest.fixture
def script() -> type[Script]:
    return Script


@pytest.fixture
def sink() -> EventList:
    return EventList()


@pytest.fixture
def plan(make_topology, make_inventory, reference_programs) -> LaunchPlan:
    return compile_plan(make_topology(), make_inventory(1), reference_programs)
