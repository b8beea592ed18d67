"""What an executor is asked, and what it answers, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pdctl.diagnostics import Diagnostic
from pdctl.fields import Fields
from pdctl.state.lock import Owner
from pdctl.state.observed import ObservedState, UnreachableNode
from pdctl.state.pending import PendingNode


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOutcome:
    """`error` is None when the process runs its own program now, else why it does not."""

    process_id: str
    run_id: str | None = None
    pid: int | None = None
    error: str | None = None
    is_unreachable: bool = False  # the node was lost: it may run all the same


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
    pids: tuple[int, ...] = ()  # of all that belonged to it
    error: str | None = None
    is_unreachable: bool = False  # then `error` says why, and it may run all the same


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
class LookQuery:
    """What one look at a deployment should see, in one round trip per machine."""

    deployment: str
    nodes: tuple[str, ...] | None = None  # to ask, those of probes and tails among them; None: all
    probes: tuple[ProbeRequest, ...] = ()
    tail_of: Mapping[str, str] = field(default_factory=dict[str, str])  # process id to node
    num_lines: int = 1  # of each of those
    device_memory: bool = False  # asking the driver takes up to a second
    settle_s: float = 0.0  # wait so long for starts and stops that are still on their way, as of who died


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """`answers` in the order of the probes; `tails` are last lines of output by process id, oldest first."""

    state: ObservedState
    answers: tuple[ProbeAnswer, ...] = ()
    tails: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOutcome:
    """`kept` are ids of processes that still live; on `unreachable` nodes nothing was removed."""

    kept: tuple[str, ...] = ()
    unreachable: tuple[UnreachableNode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Memory of a device that the driver still holds for a process which is gone."""

    pid: int
    device: str
    used_mib: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What is left of a deployment on one machine; `unproven` is why something could not be looked at."""

    node: str
    processes: tuple[str, ...] = ()  # ids
    ports: tuple[PortAnswer, ...] = ()
    memory: tuple[DeviceMemory, ...] = ()
    unproven: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What lies beside a deployment's lock: who holds it, and what an earlier `down` could not reach."""

    holder: Owner | None = None
    pending: tuple[PendingNode, ...] = ()


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
    is_unreachable: bool = False  # then `problem` is why the node can't be asked
    pid: int | None = None
    command: str | None = None
    process: str | None = None  # `deployment/process_id` when pdctl started it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuestion:
    """What one node is asked by a verb of the shim that only looks; `content` is that verb's own form."""

    node: str
    content: Mapping[str, object]
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReply:
    """`content` is the shim's answer; without one, `faults` says why. Times are this machine's wall clock."""

    node: str
    content: Fields | None = None
    faults: tuple[Diagnostic, ...] = ()
    asked_at: float = 0.0
    replied_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    process_id: str
    run_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNotice:
    """Something about the stream itself: a node was lost, or answers again."""

    node: str
    text: str  # as the end of a sentence whose subject is the node


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
