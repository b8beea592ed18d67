"""One writer at a time."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

from pdctl.diagnostics import DiagnosticError
from pdctl.events import EventSink, LockMoved, LockTaken
from pdctl.executors.base import DeploymentLock, Supervision
from pdctl.executors.calls import LookQuery
from pdctl.state.lock import Held, Owner, this_owner
from pdctl.state.observed import ObservedState

SETTLE_S = 60.0  # an end with its grace


@contextmanager
def locked(
    name: str, verb: str, nodes: DeploymentLock, sink: EventSink, *, is_ending: bool = False
) -> Generator[Owner]:
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
        yield owner
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
        yield owner
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
    since = time.strftime("%H:%M:%S", time.localtime(owner.since))
    return f"{owner.who} with `{owner.verb}` since {since} (pid {owner.pid})"
