"""Gather and scatter, bit for bit against a dense copy."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.kv.layout import KVLayout
from runtime.kv.pool import KVPool
from runtime.kv.staging_copy import block_bytes, gather_heads, scatter_heads

_PAGES = 7


def _pool(dtype: torch.dtype, page_size: int, num_heads: int, fill: int | None = None) -> KVPool:
    layout = KVLayout(
        num_layers=2,
        num_pages=_PAGES,
        page_size=page_size,
        num_kv_heads=num_heads,
        head_dim=4,
        dtype_bytes=dtype.itemsize,
    )
    pool = KVPool(layout, device=torch.device("cpu"), dtype=dtype)
    if fill is None:
        pool.as_bytes().random_(0, 256, generator=torch.Generator().manual_seed(1))
    else:
        pool.as_bytes().fill_(fill)
    return pool


def _tokens(pool: KVPool, pages: list[int]) -> torch.Tensor:
    """By definition: [2 * L, token, H, bytes of one head]."""
    layout = pool.layout
    heads = pool.as_bytes().view(2 * layout.num_layers, _PAGES, layout.page_size, layout.num_kv_heads, -1)
    return heads[:, pages].flatten(1, 2)


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.uint8]),
    page_size=st.sampled_from([1, 2, 3, 16]),
    order=st.permutations(range(_PAGES)),
    drawn=st.data(),
)
def test_what_is_gathered_and_scattered_is_the_dense_copy(dtype, page_size, order, drawn):
    num_pages = drawn.draw(st.integers(1, _PAGES))
    num_tokens = drawn.draw(st.integers((num_pages - 1) * page_size + 1, num_pages * page_size))
    src_pages, dst_pages = list(order[:num_pages]), list(reversed(order))[:num_pages]
    src_heads = drawn.draw(st.sampled_from([range(0, 1), range(1, 3), range(3)]))
    src, dst = _pool(dtype, page_size, 3), _pool(dtype, page_size, 5, fill=9)
    dst_heads = range(1, 1 + len(src_heads))
    size = block_bytes(src.layout, num_heads=len(src_heads), num_tokens=num_tokens)
    block = torch.empty(size, dtype=torch.uint8)
    gather_heads(src.tensor, src_pages, src_heads, block, num_tokens=num_tokens)
    wanted = _tokens(src, src_pages)[:, :num_tokens, src_heads.start : src_heads.stop]
    assert block.equal(wanted.flatten())

    untouched = _tokens(dst, list(range(_PAGES))).clone()
    scatter_heads(block, dst.tensor, dst_pages, dst_heads, num_tokens=num_tokens)
    landed = _tokens(dst, dst_pages)[:, :num_tokens, dst_heads.start : dst_heads.stop]
    assert landed.equal(wanted)
    for page in range(_PAGES):
        first = page * page_size
        used = page_size if page in dst_pages else 0
        if page == dst_pages[-1]:
            used = num_tokens - (num_pages - 1) * page_size
        mine = _tokens(dst, [page]).clone()
        mine[:, :used, dst_heads.start : dst_heads.stop] = 9
        assert mine.equal(untouched[:, first : first + page_size])


def test_all_slots_are_copied_unless_a_number_is_given():
    pool, other = _pool(torch.float16, 4, 2), _pool(torch.float16, 4, 2, fill=0)
    block = torch.empty(block_bytes(pool.layout, num_heads=2, num_tokens=12), dtype=torch.uint8)
    gather_heads(pool.tensor, [5, 6, 1], range(2), block)
    scatter_heads(block, other.tensor, [0, 1, 2], range(2))
    assert _tokens(other, [0, 1, 2]).equal(_tokens(pool, [5, 6, 1]))


def test_a_block_of_the_wrong_size_is_a_bug():
    pool = _pool(torch.float16, 4, 2)
    size = block_bytes(pool.layout, num_heads=2, num_tokens=4)
    for wrong in (100, size // 2, 2 * size):
        with pytest.raises(ValueError, match="size"):
            gather_heads(pool.tensor, [0], range(2), torch.empty(wrong, dtype=torch.uint8))
