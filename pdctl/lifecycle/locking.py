"""One writer at a time, and an audit line for every act that changes something."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

from pdctl.diagnostics import DiagnosticError
from pdctl.events import EventSink, LockTaken
from pdctl.executors.base import DeploymentLock
from pdctl.state.lock import Held, Owner, this_owner


@contextmanager
def locked(
    name: str, verb: str, nodes: DeploymentLock, sink: EventSink, *, even_on_a_full_disk: bool = False
) -> Generator[Owner]:
    """Hold the deployment's lock. Raises `DiagnosticError` when somebody else has it.

    With `even_on_a_full_disk`, a lock that can't be written is done without as long as nobody holds it:
    stopping a deployment must not need space.
    """
    owner = this_owner(verb)
    try:
        outcome = nodes.lock(name, owner)
    except DiagnosticError as error:
        if not even_on_a_full_disk or not _is_about_the_lock(error) or nodes.holder(name) is not None:
            raise
        yield owner
        return
    if isinstance(outcome, Held):
        raise DiagnosticError.one(
            "PD607",
            f"`{name}` is being changed by {owner_text(outcome.holder)}",
            help="wait until it is done, then run the command again",
        )
    try:
        if outcome.dead_owner is not None:
            sink.on(LockTaken(previous=owner_text(outcome.dead_owner)))
        yield owner
    finally:
        nodes.unlock(name, owner)


def _is_about_the_lock(error: DiagnosticError) -> bool:
    return all(each.code == "PD505" for each in error.diagnostics)


def owner_text(owner: Owner) -> str:
    """`anna@login1 with `up` since 12:01:33 (pid 4711)`."""
    since = time.strftime("%H:%M:%S", time.localtime(owner.since))
    return f"{owner.who} with `{owner.verb}` since {since} (pid {owner.pid})"
