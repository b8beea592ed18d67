"""What goes out for a prefill room: complete pages after each chunk, at the end that all is there."""

from __future__ import annotations

from runtime.control.messages import RoomDone
from runtime.engine.compute import Model
from runtime.engine.live import Sampled
from runtime.engine.prefill_rooms import Offer, PrefillRoom
from runtime.engine.ranks.group import GroupKV, PageCopy
from runtime.kv.checksum_table import join_ranks


def next_copy(room: PrefillRoom, offer: Offer, model: Model) -> PageCopy | None:
    """The complete pages that have not gone out, which now count as sent; None when there are none.

    No later chunk writes to a complete page. The last page goes out as it is once the prompt is done.
    """
    live, layout = room.live, model.layout
    num_pages = live.num_computed // layout.page_size
    if room.done is not None:
        num_pages = layout.num_pages_for(live.prompt_len)
    fresh = slice(room.num_sent_pages, num_pages)
    if room.num_sent_pages == num_pages:
        return None
    room.num_sent_pages = num_pages
    return PageCopy(
        ticket=offer.ticket,
        src_dp_rank=live.attn_dp_rank,
        dst_dp_rank=offer.message.attn_dp_rank,
        src_pages=live.pages[fresh],
        dst_pages=offer.message.pages[fresh],
    )


def describe_done(
    room: PrefillRoom, offer: Offer, first: Sampled, *, kv: GroupKV, model: Model, hashed: bool
) -> RoomDone:
    """The final message. With `hashed`, reads all of the request's K/V once."""
    live, logprob = room.live, first.logprob
    checksums = None
    if hashed:
        by_rank = kv.checksums(attn_dp_rank=live.attn_dp_rank, pages=live.pages, num_tokens=live.prompt_len)
        checksums = join_ranks(by_rank, model.num_kv_heads)
    return RoomDone(
        room=offer.room,
        ticket=offer.ticket,
        prompt_len=live.prompt_len,
        first_token=first.token_id,
        logprob=None if logprob is None else logprob.logprob,
        top_logprobs=() if logprob is None else logprob.top,
        checksums=checksums,
    )
