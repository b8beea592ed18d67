"""The lock of a deployment, to be looked at and, where its owner will never give it back, to be broken."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from pdctl.lifecycle.access import open_deployment
from pdctl.lifecycle.audit import audited
from pdctl.lifecycle.locking import BREAK
from pdctl.state.lock import Owner, is_dead


@dataclass(frozen=True, slots=True, kw_only=True)
class LockState:
    name: str
    holder: Owner | None
    is_dead: bool  # this machine can prove that the holder is gone
    seen_at: float  # seconds since the epoch

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def lock_of(name: str) -> LockState:
    deployment = open_deployment(name)
    holder = deployment.executor.standing(name).holder
    if holder is None:
        deployment.require_known()
    return LockState(
        name=name,
        holder=holder,
        is_dead=holder is not None and is_dead(holder),
        seen_at=time.time(),
    )


def break_lock(name: str, holder: Owner) -> bool:
    """Take the lock from this very holder; False when it was given back, or passed on, meanwhile."""
    executor = open_deployment(name).executor
    if executor.standing(name).holder != holder:
        return False
    with audited(name, BREAK, executor) as notes:
        notes.changes = (f"took the lock from {holder.who}, who had it for `{holder.verb}`",)
        executor.unlock(name, holder)
    return True
