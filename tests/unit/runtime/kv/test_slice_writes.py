"""Per-token slices against a dense copy of the heads; windows against the bytes that slices touch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.kv.layout import KVLayout
from runtime.kv.page_runs import PageWindow
from runtime.kv.reshard import HeadSlice
from runtime.kv.slice_writes import HeadWindow, slice_writes

_SRC = KVLayout(num_layers=2, num_pages=6, page_size=4, num_kv_heads=2, head_dim=3, dtype_bytes=2)
_DST = replace(_SRC, num_pages=9, num_kv_heads=4)
_HEADS = HeadSlice(prefill_rank=1, decode_rank=0, src_head=1, dst_head=2, num_heads=1)


def _dense(layout: KVLayout, memory: np.ndarray) -> np.ndarray:
    """[plane, page, slot, head, byte]"""
    shape = (2 * layout.num_layers, layout.num_pages, layout.page_size, layout.num_kv_heads, 6)
    return memory.reshape(shape)


@given(st.permutations(range(6)), st.permutations(range(9)), st.data())
def test_the_writes_copy_the_slice_of_every_token_and_nothing_else(src_order, dst_order, drawn):
    num_pages = drawn.draw(st.integers(0, 6))
    num_tokens = drawn.draw(st.integers(max(0, 4 * num_pages - 3), 4 * num_pages))
    src_pages, dst_pages = src_order[:num_pages], dst_order[:num_pages]
    src = np.random.default_rng(0).integers(1, 256, _SRC.total_bytes, dtype=np.uint8)
    dst, wanted = np.zeros(_DST.total_bytes, np.uint8), np.zeros(_DST.total_bytes, np.uint8)
    writes = slice_writes(src_pages, dst_pages, src=_SRC, dst=_DST, heads=_HEADS, num_tokens=num_tokens)
    for write in writes:
        piece = src[write.src_offset : write.src_offset + write.num_bytes]
        dst[write.dst_offset : write.dst_offset + write.num_bytes] = piece
    for token in range(num_tokens):
        page, slot = divmod(token, 4)
        piece = _dense(_SRC, src)[:, src_pages[page], slot, 1]
        _dense(_DST, wanted)[:, dst_pages[page], slot, 2] = piece
    assert (dst == wanted).all()
    window = HeadWindow(pages=PageWindow(layout=_DST, pages=frozenset(dst_pages)), heads=_HEADS)
    assert all(window.covers(write.dst_offset, write.num_bytes) for write in writes)


def test_without_a_count_every_slot_of_the_pages_moves():
    assert len(slice_writes([1, 3], [0, 8], src=_SRC, dst=_DST, heads=_HEADS)) == 2 * 4 * 2 * _SRC.num_layers


@given(st.integers(-3, _DST.total_bytes + 3), st.integers(-1, 40))
def test_a_window_covers_a_range_within_its_heads_of_one_slot(offset, num_bytes):
    window = HeadWindow(pages=PageWindow(layout=_DST, pages=frozenset({2, 3})), heads=_HEADS)
    owner = np.arange(_DST.total_bytes) // 6  # one number per head of one slot
    page, head = owner // (4 * 4) % 9, owner % 4
    allowed = np.isin(page, [2, 3]) & (head == 2)
    span = range(offset, offset + num_bytes)
    inside = num_bytes > 0 and offset >= 0 and offset + num_bytes <= _DST.total_bytes
    wanted = bool(inside and allowed[span].all() and len(set(owner[span])) == 1)
    assert window.covers(offset, num_bytes) == wanted
