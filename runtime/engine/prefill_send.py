"""What goes out for a prefill room: complete pages after each chunk, at the end that all is there."""

from __future__ import annotations

from runtime.control.messages import RoomDone
from runtime.engine.compute import Model
from runtime.engine.live import Sampled
from runtime.engine.prefill_rooms import Offer, PrefillRoom
from runtime.kv.checksums import layer_checksums
from runtime.kv.page_runs import Write, join_runs, page_writes


def next_writes(room: PrefillRoom, offer: Offer, model: Model) -> list[Write]:
    """The copies of the complete pages that have not gone out, which now count as sent.

    No later chunk writes to a complete page. The last page goes out as it is once the prompt is done.
    """
    live, layout = room.live, model.layout
    num_pages = live.num_computed // layout.page_size
    if room.done is not None:
        num_pages = layout.num_pages_for(live.prompt_len)
    fresh = slice(room.num_sent_pages, num_pages)
    room.num_sent_pages = num_pages
    runs = join_runs(live.pages[fresh], offer.message.pages[fresh])
    return page_writes(runs, src=layout, dst=offer.peer.layout)


def describe_done(room: PrefillRoom, offer: Offer, first: Sampled, model: Model, *, hashed: bool) -> RoomDone:
    """The final message. With `hashed`, reads all of the request's K/V once."""
    live, logprob = room.live, first.logprob
    checksums = None
    if hashed:
        checksums = layer_checksums(model.pool, model.layout, live.pages, live.prompt_len)
    return RoomDone(
        room=offer.room,
        ticket=offer.ticket,
        prompt_len=live.prompt_len,
        first_token=first.token_id,
        logprob=None if logprob is None else logprob.logprob,
        top_logprobs=() if logprob is None else logprob.top,
        checksums=checksums,
    )
