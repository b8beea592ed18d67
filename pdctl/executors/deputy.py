"""The protocol of a deputy: who works on a deployment inside the cluster, so that its operator may leave."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol

from pdctl.events import EventSink
from pdctl.fields import Fields
from pdctl.state.lock import Owner
from pdctl.topology.model import Topology

Verb = Literal["up", "restart", "down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An act that a deputy is asked for. Tokens sort by the time at which they were made."""

    verb: Verb
    who: str  # `user@host`
    token: str = field(default_factory=lambda: f"{time.time_ns():020}-{uuid.uuid4().hex[:12]}")
    document: str | None = None  # of `up`: the frozen topology
    ids: tuple[str, ...] = ()  # of `restart`: instances or processes
    options: Mapping[str, object] = field(default_factory=dict[str, object])


class Attendance(StrEnum):
    NONE = "none"  # nothing was asked for, or all of it is over
    AWAITED = "awaited"  # the cluster has no room yet
    AT_WORK = "at work"
    GONE = "gone"  # the nodes are still ours, but nobody works there


class Deputy(Protocol):
    """One deployment's. What goes wrong is a `DiagnosticError`; what happens meanwhile goes into the sink."""

    def attendance(self) -> Attendance: ...

    def engage(self, topology: Topology, request: Request, sink: EventSink) -> None:
        """Ask the cluster for a deputy whose first work is this request; returns without waiting for it."""
        ...

    def hand_over(self, request: Request) -> None:
        """Put a request to the deputy that is at work."""
        ...

    def await_outcome(self, request: Request, sink: EventSink) -> Fields:
        """Tell what the deputy does until the request is done, and give what came of it.

        Raises `DiagnosticError` with what the deputy told, or when there is no deputy any more.
        """
        ...

    def withdraw(self, request: Request) -> bool:
        """Take a request back that nobody has begun with, and the deputy too where it has not come yet.

        False: it is being worked on, and goes on.
        """
        ...

    def dismiss(self, *, grace_s: float, is_ending: bool) -> tuple[str, ...]:
        """End the deputy with all that it started, and the job where it is ours; gives what is left of it.

        One that `is_ending` by itself has `grace_s` for that before it is told to.
        """
        ...

    def is_over(self, owner: Owner) -> bool:
        """Whether this owner of a lock was a deputy that is provably gone."""
        ...

    def remarks(self) -> tuple[str, ...]:
        """What there is to say of the deputy and its nodes, beside what is seen of processes."""
        ...

    def last_words(self) -> str | None:
        """How the deployment ended last, by itself or by the cluster; None while it runs, or never ran."""
        ...

    def clear(self) -> None:
        """Remove what the deputy kept for its deployment. Only once nothing of it runs."""
        ...
