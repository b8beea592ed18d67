"""What a prefill engine knows of its decode peers and of each room. Belongs to the engine thread."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from runtime.control.messages import OpenRoom, RoomDone
from runtime.control.rooms import KVPoll
from runtime.engine.live import LiveRequest, Sampled
from runtime.kv.layout import KVLayout
from runtime.transfer.base import SendSession

MAX_EARLY_ROOMS = 16_384


@dataclass(slots=True, kw_only=True, eq=False)
class DecodePeer:
    """A decode instance that was welcomed."""

    link_id: int
    layout: KVLayout
    session: SendSession
    wants_checksums: bool
    backlog: deque[PrefillRoom] = field(default_factory=deque)  # would fill more than its share of the pool


@dataclass(slots=True, kw_only=True, eq=False)
class PrefillRoom:
    """One request on the prefill side. `peer` and `offer` come together, with `OpenRoom`."""

    room: int
    live: LiveRequest
    deadline_s: float  # of the wait for `OpenRoom`
    state: KVPoll = KVPoll.Bootstrapping
    peer: DecodePeer | None = None
    offer: OpenRoom | None = None
    share_pages: int = 0  # counted against the peer's share
    num_sent_pages: int = 0
    num_in_flight: int = 0  # sends that are not answered yet
    first: Sampled | None = None
    done: RoomDone | None = None  # to be sent when the last send is applied
    abort_asked: bool = False  # decode waits for `AbortDone`


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyRoom:
    """An `OpenRoom` that came before its request."""

    peer: DecodePeer
    offer: OpenRoom
    deadline_s: float


def offer_fault(offer: OpenRoom, peer: DecodePeer) -> str | None:
    """Why the pages of an `OpenRoom` cannot be written, or None."""
    num_pages = peer.layout.num_pages_for(offer.prompt_len)
    if len(offer.pages) != num_pages:
        return f"{len(offer.pages)} pages for {offer.prompt_len} prompt tokens, wanted {num_pages}"
    if len(set(offer.pages)) != num_pages:
        return "a page is named twice"
    if max(offer.pages) >= peer.layout.num_pages:
        return f"page {max(offer.pages)} of a pool of {peer.layout.num_pages} pages"
    return None
