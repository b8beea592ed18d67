"""From pages to bytes, checked against pools that are really copied."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kv.layout import KVLayout
from runtime.kv.page_runs import PageRun, PageWindow, Write, join_runs, page_writes

_SRC = KVLayout(num_layers=2, num_pages=12, page_size=2, num_kv_heads=1, head_dim=2, dtype_bytes=2)
_DST = replace(_SRC, num_pages=20)
_PAGES = st.lists(st.integers(0, 11), unique=True, max_size=12)


@pytest.mark.parametrize(
    ("src", "dst", "runs"),
    [
        ([], [], []),
        ([3], [7], [PageRun(3, 7, 1)]),
        ([3, 4, 5], [7, 8, 9], [PageRun(3, 7, 3)]),
        ([3, 4, 5], [7, 9, 10], [PageRun(3, 7, 1), PageRun(4, 9, 2)]),
        ([5, 4, 3], [7, 6, 5], [PageRun(5, 7, 1), PageRun(4, 6, 1), PageRun(3, 5, 1)]),
    ],
)
def test_neighbours_on_both_sides_are_joined(src, dst, runs):
    assert join_runs(src, dst) == runs


def test_lists_of_different_length_are_a_bug():
    with pytest.raises(ValueError, match="argument"):
        join_runs([1], [1, 2])


@given(_PAGES, st.randoms(use_true_random=False))
def test_the_writes_copy_every_page_of_every_plane_and_nothing_else(src_pages, random):
    dst_pages = random.sample(range(_DST.num_pages), len(src_pages))
    src = bytes(random.randbytes(_SRC.total_bytes))
    dst = bytearray(_DST.total_bytes)
    for write in page_writes(join_runs(src_pages, dst_pages), src=_SRC, dst=_DST):
        dst[write.dst_offset : write.dst_offset + write.num_bytes] = src[
            write.src_offset : write.src_offset + write.num_bytes
        ]
    wanted = bytearray(_DST.total_bytes)
    for plane in range(2 * _SRC.num_layers):
        for one, two in zip(src_pages, dst_pages, strict=True):
            page = src[plane * _SRC.plane_bytes + one * _SRC.page_bytes :][: _SRC.page_bytes]
            start = plane * _DST.plane_bytes + two * _DST.page_bytes
            wanted[start : start + _DST.page_bytes] = page
    assert dst == wanted


def test_a_run_is_one_write_per_layer_and_half():
    writes = page_writes([PageRun(1, 2, 3)], src=_SRC, dst=_DST)
    assert len(writes) == 2 * _SRC.num_layers
    assert writes[0] == Write(src_offset=8, dst_offset=16, num_bytes=24)


@given(_PAGES, st.integers(-5, 400), st.integers(-2, 400))
def test_a_window_covers_what_lies_in_its_pages(pages, offset, num_bytes):
    window = PageWindow(layout=_SRC, pages=frozenset(pages))
    allowed = {
        plane * _SRC.plane_bytes + page * _SRC.page_bytes + byte
        for plane in range(2 * _SRC.num_layers)
        for page in pages
        for byte in range(_SRC.page_bytes)
    }
    touched = range(offset, offset + num_bytes)
    one_plane = num_bytes > 0 and offset // _SRC.plane_bytes == (offset + num_bytes - 1) // _SRC.plane_bytes
    assert window.covers(offset, num_bytes) == (one_plane and set(touched) <= allowed)


@given(_PAGES)
def test_a_window_covers_every_write_into_its_pages(dst_pages):
    window = PageWindow(layout=_DST, pages=frozenset(dst_pages))
    writes = page_writes(join_runs(range(len(dst_pages)), dst_pages), src=_SRC, dst=_DST)
    assert all(window.covers(write.dst_offset, write.num_bytes) for write in writes)
