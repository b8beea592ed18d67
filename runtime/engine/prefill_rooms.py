"""One room on the prefill side. Belongs to the engine thread."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.control.messages import OpenRoom, RoomDone
from runtime.control.rooms import KVPoll
from runtime.engine.live import LiveRequest, Sampled
from runtime.engine.prefill_peers import DecodePeer

MAX_EARLY_ROOMS = 16_384


@dataclass(slots=True, kw_only=True, eq=False)
class PrefillRoom:
    """A request whose pages decode has not told yet: then `offer` comes, and with it who sent it."""

    room: int
    live: LiveRequest
    deadline_s: float  # of the wait for `OpenRoom`
    state: KVPoll = KVPoll.Bootstrapping
    offer: Offer | None = None
    num_sent_pages: int = 0
    num_in_flight: int = 0  # sends that are not answered yet
    first: Sampled | None = None
    done: RoomDone | None = None  # to be sent when the last send is applied
    abort_asked: bool = False  # decode waits for `AbortDone`


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Pages that decode holds ready for the prompt of a room."""

    peer: DecodePeer
    message: OpenRoom
    deadline_s: float  # of the wait for the request, when the offer came first

    @property
    def room(self) -> int:
        return self.message.room

    @property
    def ticket(self) -> int:
        return self.message.ticket


def offer_fault(offer: Offer, *, page_size: int) -> str | None:
    """Why the offered pages cannot be written, or None."""
    pages, prompt_len, peer = offer.message.pages, offer.message.prompt_len, offer.peer
    if offer.message.attn_dp_rank >= peer.attn_dp_size:
        return f"attention-DP rank {offer.message.attn_dp_rank} of {peer.attn_dp_size}"
    num_pages = -(-prompt_len // page_size)
    if len(pages) != num_pages:
        return f"{len(pages)} pages for {prompt_len} prompt tokens, wanted {num_pages}"
    if len(set(pages)) != num_pages:
        return "a page is named twice"
    if max(pages) >= peer.num_pages:
        return f"page {max(pages)} of a pool of {peer.num_pages} pages"
    return None
