"""From pages and a head slice to byte ranges: one small copy per token, layer, and K or V. Pure arithmetic.

The slow way between unequal attention splits, for when there is no staging buffer: heads of one token are
neighbours in a pool, heads of two tokens are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.kv.layout import KVLayout
from runtime.kv.page_runs import PageWindow, Write
from runtime.kv.reshard import HeadSlice


def slice_writes(
    src_pages: Sequence[int],
    dst_pages: Sequence[int],
    *,
    src: KVLayout,
    dst: KVLayout,
    heads: HeadSlice,
    num_tokens: int | None = None,
) -> list[Write]:
    """The copies that move one head slice of the pages' first `num_tokens` tokens (None: of all slots)."""
    pairs = list(zip(src_pages, dst_pages, strict=True))
    total = len(pairs) * src.page_size if num_tokens is None else num_tokens
    src_head, dst_head = head_bytes(src), head_bytes(dst)
    src_slot, dst_slot = src.page_bytes // src.page_size, dst.page_bytes // dst.page_size
    slots = [
        (
            one * src.page_bytes + slot * src_slot + heads.src_head * src_head,
            two * dst.page_bytes + slot * dst_slot + heads.dst_head * dst_head,
        )
        for index, (one, two) in enumerate(pairs)
        for slot in range(min(src.page_size, total - index * src.page_size))
    ]
    num_bytes = heads.num_heads * src_head
    return [
        Write(src_plane + src_offset, dst_plane + dst_offset, num_bytes)
        for src_plane, dst_plane in zip(_planes(src), _planes(dst), strict=True)
        for src_offset, dst_offset in slots
    ]


def head_bytes(layout: KVLayout) -> int:
    """Bytes of one head of one token in one layer's K or V."""
    return layout.head_dim * layout.dtype_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadWindow:
    """Some heads of some pages of a pool: what one of several senders of a room may write."""

    pages: PageWindow
    heads: HeadSlice

    def covers(self, offset: int, num_bytes: int) -> bool:
        """Whether the range lies in one slot of the pages, and touches none but the slice's heads."""
        if not self.pages.covers(offset, num_bytes):
            return False
        layout = self.pages.layout
        slot_bytes, size = layout.page_bytes // layout.page_size, head_bytes(layout)
        start = offset % layout.plane_bytes % slot_bytes
        first, end = self.heads.dst_head * size, (self.heads.dst_head + self.heads.num_heads) * size
        return first <= start and start + num_bytes <= end


def _planes(layout: KVLayout) -> range:
    """Where each plane begins, in bytes."""
    return range(0, layout.total_bytes, layout.plane_bytes)
