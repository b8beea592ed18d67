"""One writer at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from pdctl.clock import Clock, SystemClock
from pdctl.diagnostics import DiagnosticError
from pdctl.events import EventSink, LockMoved, LockTaken
from pdctl.executors.base import DeploymentLock, PlanKeeping, Supervision
from pdctl.executors.calls import LookQuery, Standing
from pdctl.state.audit import AuditEntry
from pdctl.state.lock import Held, Owner, this_owner
from pdctl.state.observed import ObservedState

SETTLE_S = 60.0  # an end with its grace
CONFIRM_EVERY_S = 1.0
BREAK = "lock break"  # the verb of who takes the lock from its holder
NOTE_PATIENCE_S = 2.0  # who breaks a lock writes it into the history a moment later


class LockNodes(DeploymentLock, PlanKeeping, Protocol):
    """The nodes that have lock and history."""


@dataclass(slots=True, kw_only=True)
class HeldLock:
    """The lock while an act goes on. `owner` is None where it could not be taken and is done without."""

    name: str
    nodes: LockNodes
    owner: Owner | None
    clock: Clock = field(default_factory=SystemClock)
    _confirmed_at: float = 0.0

    def __post_init__(self) -> None:
        self._confirmed_at = self.clock.now()

    def require(self) -> None:
        """Raise `DiagnosticError` once somebody took it away; nodes are asked once a second at most."""
        if self.owner is None or self.clock.now() - self._confirmed_at < CONFIRM_EVERY_S:
            return
        try:
            standing = self.nodes.standing(self.name)
        except DiagnosticError:  # its nodes are lost: who goes on with the act sees that too, and tells it
            return
        if standing.holder is None or standing.holder.token != self.owner.token:
            raise self._taken_away(standing)
        self._confirmed_at = self.clock.now()

    def _taken_away(self, standing: Standing) -> DiagnosticError:
        broken = self._break()
        by = "somebody" if broken is None else broken.who
        at = "" if broken is None else f" at {_time_of_day(broken.at)}"
        now = "nobody" if standing.holder is None else owner_text(standing.holder)
        return DiagnosticError.one(
            "PD614",
            f"{by} has taken the lock of `{self.name}` away{at}",
            notes=(f"{now} has it now", "nothing more was started or stopped; what runs goes on"),
            help=f"find out why; `pdctl lock show {self.name}` tells who works on it, and the same command "
            "again goes on",
        )

    def _break(self) -> AuditEntry | None:
        """Who took it, as the history has it; None where it doesn't say."""
        assert self.owner is not None
        deadline = self.clock.now() + NOTE_PATIENCE_S
        while True:
            with contextlib.suppress(DiagnosticError):
                for entry in reversed(self.nodes.history(self.name)):
                    if entry.verb == BREAK and any(self.owner.who in each for each in entry.changes):
                        return entry
            if self.clock.now() > deadline:
                return None
            self.clock.sleep(NOTE_PATIENCE_S / 4)


@contextmanager
def locked(
    name: str, verb: str, nodes: LockNodes, sink: EventSink, *, is_ending: bool = False
) -> Generator[HeldLock]:
    """Hold the deployment's lock. Raises `DiagnosticError` when somebody else has it.

    Ending a deployment must need neither space nor a certain node: with `is_ending`, a lock that can't be
    written is done without as long as nobody holds it, and it may lie on another node than the first.
    """
    owner = this_owner(verb)
    try:
        outcome = nodes.lock(name, owner, anywhere=is_ending)
    except DiagnosticError as error:
        if not is_ending or not _is_about_the_lock(error) or nodes.holder(name) is not None:
            raise
        yield HeldLock(name=name, nodes=nodes, owner=None)
        return
    if isinstance(outcome, Held):
        raise DiagnosticError.one(
            "PD607",
            f"`{name}` is being changed by {owner_text(outcome.holder)}",
            help=f"wait until it is done; `pdctl lock show {name}` tells whether it still is",
        )
    try:
        if outcome.dead_owner is not None:
            sink.on(LockTaken(previous=owner_text(outcome.dead_owner)))
        if outcome.instead_of:
            sink.on(LockMoved(instead_of=outcome.instead_of))
        yield HeldLock(name=name, nodes=nodes, owner=owner)
    finally:
        nodes.unlock(name, owner)


def settled(name: str, nodes: Supervision) -> ObservedState:
    """What there is when nothing is on its way any more; for whoever holds the lock.

    An operator who died, and whose lock was taken over, may have left starts and stops that still go on.
    """
    return nodes.look(LookQuery(deployment=name, settle_s=SETTLE_S)).state


def _is_about_the_lock(error: DiagnosticError) -> bool:
    return all(each.code == "PD505" for each in error.diagnostics)


def owner_text(owner: Owner) -> str:
    """`anna@login1 with `up` since 12:01:33 (pid 4711)`."""
    return f"{owner.who} with `{owner.verb}` since {_time_of_day(owner.since)} (pid {owner.pid})"


def _time_of_day(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))
