"""Heads of some pages into one contiguous block, and out of it into other pages.

L layers, P pages, S slots per page, H KV heads of a pool, G heads of a slice, D head_dim, N tokens,
M = 2 * L planes (K and V of each layer).

One strided copy per run of neighbouring pages. An indexed gather (`index_select`) over the same bytes took
ten times as long on CPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from runtime.kv.layout import KVLayout

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def pool_tensor(pool: memoryview, layout: KVLayout) -> Tensor:
    """The bytes of a pool in host memory as [L, M / L, P, S, H, D], of integers as wide as its elements."""
    shape = (layout.num_layers, -1, layout.num_pages, layout.page_size, layout.num_kv_heads, layout.head_dim)
    return torch.frombuffer(pool, dtype=_BITS[layout.dtype_bytes]).view(shape)


def block_bytes(layout: KVLayout, *, num_heads: int, num_tokens: int) -> int:
    """Bytes of a block with so many heads and tokens of all planes."""
    num_planes = layout.total_bytes // layout.plane_bytes
    return num_planes * num_tokens * num_heads * layout.head_dim * layout.dtype_bytes


def gather_heads(
    pool: Tensor, pages: Sequence[int], heads: range, block: Tensor, *, num_tokens: int | None = None
) -> None:
    """Copy one head range of the pages into the block, in token order.

    pool:  [L, 2, P, S, H, D], read only
    pages: whose first `num_tokens` slots are copied; None: all
    block: uint8, [block_bytes]; becomes [M, N, G, D]. The caller owns it.
    """
    planes = _planes(pool, heads)
    staged = _staged(planes, block, _num_tokens(pool, pages, num_tokens))
    for start, page, num_pages in _runs(pages):
        part, first = _slots(planes, staged, start, page, num_pages), start * planes.shape[2]
        staged[:, first : first + part.shape[1]].copy_(part)


def scatter_heads(
    block: Tensor, pool: Tensor, pages: Sequence[int], heads: range, *, num_tokens: int | None = None
) -> None:
    """Copy a block that `gather_heads` made into one head range of the pages; the exact inverse.

    pool: [L, 2, P, S, H, D]; nothing but the heads of the first `num_tokens` slots of the pages is written
    """
    planes = _planes(pool, heads)
    staged = _staged(planes, block, _num_tokens(pool, pages, num_tokens))
    for start, page, num_pages in _runs(pages):
        part, first = _slots(planes, staged, start, page, num_pages), start * planes.shape[2]
        part.copy_(staged[:, first : first + part.shape[1]])


def _planes(pool: Tensor, heads: range) -> Tensor:
    """[M, P, S, G, D], a view of the pool."""
    return pool.flatten(0, 1)[..., heads.start : heads.stop, :]


def _staged(planes: Tensor, block: Tensor, num_tokens: int) -> Tensor:
    """[M, N, G, D], a view of the block."""
    num_planes, _, _, num_heads, head_dim = planes.shape
    return block.view(planes.dtype).view(num_planes, num_tokens, num_heads, head_dim)


def _num_tokens(pool: Tensor, pages: Sequence[int], num_tokens: int | None) -> int:
    return len(pages) * pool.shape[3] if num_tokens is None else num_tokens


def _runs(pages: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Neighbours joined: (index of the first, first page, number of pages)."""
    start = 0
    for index in range(1, len(pages) + 1):
        if index == len(pages) or pages[index] != pages[index - 1] + 1:
            yield start, pages[start], index - start
            start = index


def _slots(planes: Tensor, staged: Tensor, start: int, page: int, num_pages: int) -> Tensor:
    """The slots of a run that the block has, [M, tokens, G, D], a view of the pool.

    Slots are equally far apart, across the border of neighbouring pages too.
    """
    num_slots = planes.shape[2]
    count = min(num_pages * num_slots, staged.shape[1] - start * num_slots)
    shape = (planes.shape[0], count, *planes.shape[3:])
    strides = (planes.stride(0), planes.stride(2), planes.stride(3), planes.stride(4))
    return torch.as_strided(planes[:, page : page + num_pages], shape, strides)
