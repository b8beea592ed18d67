"""A lock that somebody else takes away while an act goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.calls import Standing
from pdctl.lifecycle.locking import HeldLock
from pdctl.state.audit import AuditEntry
from pdctl.state.lock import Owner


@dataclass
class Passing:
    """A clock on which time passes only when somebody sleeps."""

    seconds: float = 100.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Nodes:
    """As much of an executor as a held lock asks."""

    holder: Owner | None
    entries: tuple[AuditEntry, ...] = ()
    is_lost: bool = False
    num_asked: int = field(default=0)

    def standing(self, deployment: str) -> Standing:
        self.num_asked += 1
        if self.is_lost:
            raise DiagnosticError.one("PD503", "the cluster can't be reached")
        return Standing(holder=self.holder)

    def history(self, deployment: str) -> tuple[AuditEntry, ...]:
        return self.entries


def owner(token: str, who: str) -> Owner:
    return Owner(
        token=token,
        who=who,
        verb="up",
        since=0.0,
        host="desk",
        boot_id="b",
        pid_namespace=1,
        pid=7,
        start_ticks=1,
    )


ADA, BOB = owner("a", "ada@desk"), owner("b", "bob@lab")
BREAK = AuditEntry(
    at=0.0,
    who="bob@lab",
    verb="lock break",
    outcome="done",
    changes=("took the lock from ada@desk, who had it for `up`",),
)


def held(nodes: Nodes, clock: Passing, holder: Owner | None = ADA) -> HeldLock:
    return HeldLock(name="far", nodes=nodes, owner=holder, clock=clock)  # pyright: ignore[reportArgumentType]


def test_a_lock_that_is_held_is_confirmed_once_a_second_at_most():
    nodes, clock = Nodes(ADA), Passing()
    lock = held(nodes, clock)
    for _ in range(30):
        lock.require()
        clock.sleep(0.1)
    assert nodes.num_asked == 2


@pytest.mark.parametrize(
    ("holder", "entries", "message", "note"),
    [
        (None, (BREAK,), "bob@lab has taken the lock of `far` away at ", "nobody has it now"),
        (BOB, (BREAK,), "bob@lab has taken", "bob@lab with `up` since "),
        (BOB, (), "somebody has taken the lock of `far` away", "bob@lab with `up` since "),
    ],
)
def test_a_broken_lock_says_who_broke_it_and_who_has_it(holder, entries, message, note):
    clock = Passing()
    lock = held(Nodes(holder, entries), clock)
    clock.sleep(2)
    with pytest.raises(DiagnosticError) as caught:
        lock.require()
    (fault,) = caught.value.diagnostics
    assert fault.code == "PD614"
    assert fault.message.startswith(message)
    assert fault.notes[0].startswith(note)


def test_lost_nodes_are_no_broken_lock_and_a_lock_that_was_never_taken_none_either():
    clock = Passing()
    locks = (held(Nodes(None, is_lost=True), clock), held(Nodes(None), clock, holder=None))
    clock.sleep(2)
    for lock in locks:
        lock.require()
