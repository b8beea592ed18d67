"""What happens while a deployment changes, as values; a sink shows or records them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """The cluster was asked for nodes."""

    job_id: int
    without: tuple[str, ...] = ()  # nodes that are remembered as bad


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """Said again every few seconds while the job waits for its nodes."""

    job_id: int
    reason: str  # the cluster's own word
    elapsed_s: float
    starts_in_s: float | None  # as the cluster estimates


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    job_id: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing:
    """A node gets something ready before processes start, such as a model file."""

    node: str
    text: str
    received_bytes: int | None = None
    total_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    process_id: str
    node: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    process_id: str
    node: str
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Said again every second or so while a process isn't ready yet."""

    process_id: str
    reason: str  # what the last probe saw: `connection refused`, `HTTP 503`
    elapsed_s: float
    deadline_s: float
    last_line: str | None  # of the process's own output


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    process_id: str
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    process_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    process_id: str
    node: str
    cause: str
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    process_id: str
    killed: bool  # KILL was needed
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifying:
    """The canary, one real generation through the router, is on its way."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    text: str  # what the model answered, shortened
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LockTaken:
    """The previous owner of the lock is dead; its lock was taken over."""

    previous: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockMoved:
    """The nodes that should have the lock can't be reached, so the next one has it."""

    instead_of: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """Something may go wrong later; the act goes on."""

    code: str
    message: str
    help: str | None


Event = (
    Submitted
    | Queued
    | Allocated
    | Preparing
    | Starting
    | Started
    | Waiting
    | Ready
    | Failed
    | Stopping
    | Stopped
    | Verifying
    | Verified
    | LockTaken
    | LockMoved
    | Warned
)


class EventSink(Protocol):
    """Where events go: a screen, JSON lines, a list in a test."""

    def on(self, *events: Event) -> None:
        """What happens together is given together, and may be told in one line."""
        ...
