"""What a decode engine knows of its prefill peers and of each room. Belongs to the engine thread."""

from __future__ import annotations

from dataclasses import dataclass, field

from runtime.control.rooms import KVPoll
from runtime.engine.live import LiveRequest

Address = tuple[str, int]  # of a bootstrap server


@dataclass(slots=True, kw_only=True, eq=False)
class PrefillPeer:
    """A prefill server on the way from its bootstrap address to a welcomed link."""

    address: Address
    link_id: int | None = None  # None while the bootstrap server is asked
    is_ready: bool = False  # it has said `Welcome`
    rooms: set[DecodeRoom] = field(default_factory=set)

    @property
    def name(self) -> str:
        return f"the prefill instance {self.address[0]}:{self.address[1]}"


@dataclass(slots=True, kw_only=True, eq=False)
class DecodeRoom:
    """One request on the decode side. It has a ticket from the moment that prefill knows its pages."""

    room: int
    live: LiveRequest
    peer: PrefillPeer
    deadline_s: float
    state: KVPoll = KVPoll.Bootstrapping
    ticket: int | None = None
