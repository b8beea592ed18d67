"""Who may write where, and who is writing right now: the receiver's side of tickets. Thread-safe, no I/O."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

from runtime.transfer.base import OnQuiet, Window
from runtime.transfer.wire.frames import Frame


class OutsideError(Exception):
    """A write that its ticket does not cover."""


@dataclass(slots=True, kw_only=True, eq=False)
class Grant:
    """One ticket's window. It outlives `revoke` for as long as writes that had begun may land."""

    region_id: int
    window: Window
    writers: Counter[Hashable] = field(default_factory=Counter)  # writes under way, by connection
    on_quiet: OnQuiet | None = None  # set by `revoke`


class Grants:
    """The grants of all tickets, under one lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_ticket: dict[int, Grant] = {}

    def allow(self, ticket: int, region_id: int, window: Window) -> None:
        with self._lock:
            self._by_ticket[ticket] = Grant(region_id=region_id, window=window)

    def revoke(self, ticket: int, on_quiet: OnQuiet) -> tuple[Hashable, ...]:
        """Begin no write under the ticket any more; `on_quiet` is called when none is under way.

        Gives the connections that are writing, for a backend that can cut them.
        """
        with self._lock:
            grant = self._by_ticket.pop(ticket, None)
            if grant is not None and grant.writers:
                grant.on_quiet = on_quiet
                return tuple(grant.writers)
        on_quiet()
        return ()

    def begin(self, writer: Hashable, frame: Frame) -> Grant | None:
        """Check a write and count it as under way, in one step: no `revoke` falls between.

        None when the ticket is not, or no longer, allowed. Raises OutsideError.
        """
        with self._lock:
            grant = self._by_ticket.get(frame.ticket)
            if grant is None:
                return None
            if grant.region_id != frame.region_id:
                raise OutsideError(
                    f"a write into region {frame.region_id}, the ticket is for {grant.region_id}"
                )
            for offset, num_bytes in frame.spans:
                if not grant.window.covers(offset, num_bytes):
                    raise OutsideError(
                        f"a write of {num_bytes} bytes at {offset}, outside the pages of its room"
                    )
            grant.writers[writer] += 1
            return grant

    def end(self, writer: Hashable, grant: Grant) -> None:
        """A write that `begin` counted is over: no byte of it lands any more."""
        with self._lock:
            grant.writers[writer] -= 1
            if not grant.writers[writer]:
                del grant.writers[writer]
            on_quiet = grant.on_quiet if not grant.writers else None
            if on_quiet is not None:
                grant.on_quiet = None
        if on_quiet is not None:
            on_quiet()
