"""What an executor is asked, and what it answers, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOutcome:
    """`error` is None when the process runs its own program now, else why it does not."""

    process_id: str
    run_id: str | None = None
    pid: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """An OS process that KILL did not end, such as one that hangs in the kernel."""

    pid: int
    command: str
    state: str  # as in /proc: `D` waits in the kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOutcome:
    """Stopped and verified gone when `error` is None and `survivors` is empty."""

    process_id: str
    was_alive: bool = False
    killed: bool = False  # the grace ran out, or something had left the process's group
    elapsed_s: float = 0.0
    survivors: tuple[Survivor, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """One HTTP request, sent from the node itself."""

    node: str
    url: str
    method: str = "GET"
    body: bytes | None = None  # JSON
    timeout_s: float = 5.0  # for the whole exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """`status` and `body` when something answered, else `error`."""

    status: int | None = None
    body: str = ""  # at most 256 KiB
    error: str | None = None  # `connection refused`, `no answer within 5 s`, …
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PortQuery:
    node: str
    host: str  # the address that will be bound
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PortAnswer:
    """`problem` is None when the port can be bound; the rest says who is in the way, where that is known."""

    query: PortQuery
    problem: str | None = None  # `taken`, or why the address can't be bound
    pid: int | None = None
    command: str | None = None
    process: str | None = None  # `deployment/process_id` when pdctl started it


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    process_id: str
    run_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Which lines are wanted. `node_of` maps process ids to their nodes."""

    deployment: str
    node_of: Mapping[str, str]
    tail: int | None = 10  # lines per process; None: all that is kept
    follow: bool = False  # also into later runs; never ends by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCommand:
    """A command that must run on a node before processes start, such as a model fetch."""

    node: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLine:
    text: str
    is_error: bool = False  # came through stderr


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnded:
    """The last item of a command's output."""

    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None  # it could not be executed


CommandOutput = OutputLine | CommandEnded
