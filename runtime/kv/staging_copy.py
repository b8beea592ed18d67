"""Heads of some pages into one contiguous block, and out of it into other pages.

L layers, P pages, S slots per page, H KV heads of a pool, G heads of a slice, D head_dim, N tokens,
M = 2 * L planes (K and V of each layer).

One strided copy per run of neighbouring pages, in which the heads of a slot are one opaque item: numpy copies
them as a block, at 0.7 of the speed of a plain copy, where torch, element by element, came to 0.5. A plain
copy needn't read what it overwrites, so more than about that is not to be had. An indexed gather
(`index_select`) took ten times as long. Other threads of the process go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from runtime.kv.layout import KVLayout
from runtime.kv.memory import Memory, tensor_of

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def pool_tensor(pool: Memory, layout: KVLayout) -> Tensor:
    """The bytes of a pool as [L, M / L, P, S, H, D], of integers as wide as its elements, where they lie."""
    shape = (layout.num_layers, -1, layout.num_pages, layout.page_size, layout.num_kv_heads, layout.head_dim)
    return tensor_of(pool).view(_BITS[layout.dtype_bytes]).view(shape)


def block_bytes(layout: KVLayout, *, num_heads: int, num_tokens: int) -> int:
    """Bytes of a block with so many heads and tokens of all planes."""
    num_planes = layout.total_bytes // layout.plane_bytes
    return num_planes * num_tokens * num_heads * layout.head_dim * layout.dtype_bytes


def gather_heads(
    pool: Tensor, pages: Sequence[int], heads: range, block: Tensor, *, num_tokens: int | None = None
) -> None:
    """Copy one head range of the pages into the block, in token order.

    pool:  [L, 2, P, S, H, D], contiguous, in host memory, read only
    pages: whose first `num_tokens` slots are copied; None: all
    block: uint8, [block_bytes]; becomes [M, N, G, D]. The caller owns it.
    """
    slots, staged = _slots(pool, heads), _staged(pool, heads, block, _num_tokens(pool, pages, num_tokens))
    for ours, theirs in _runs(pages, pool.shape[3], staged.shape[1]):
        staged[:, theirs] = slots[:, ours]


def scatter_heads(
    block: Tensor, pool: Tensor, pages: Sequence[int], heads: range, *, num_tokens: int | None = None
) -> None:
    """Copy a block that `gather_heads` made into one head range of the pages; the exact inverse.

    pool: [L, 2, P, S, H, D]; nothing but the heads of the first `num_tokens` slots of the pages is written
    """
    slots, staged = _slots(pool, heads), _staged(pool, heads, block, _num_tokens(pool, pages, num_tokens))
    for ours, theirs in _runs(pages, pool.shape[3], staged.shape[1]):
        slots[:, ours] = staged[:, theirs]


def _slots(pool: Tensor, heads: range) -> np.ndarray:
    """[M, P * S], a view of the pool; an item is the heads of one slot, [G, D]."""
    layers, planes, num_pages, page_size, num_heads, head_dim = pool.shape
    head_bytes = head_dim * pool.element_size()
    slot_bytes = num_heads * head_bytes
    return np.ndarray(
        (layers * planes, num_pages * page_size),
        dtype=_item(pool, heads),
        buffer=pool.view(torch.uint8).numpy().data,
        offset=heads.start * head_bytes,
        strides=(num_pages * page_size * slot_bytes, slot_bytes),
    )


def _staged(pool: Tensor, heads: range, block: Tensor, num_tokens: int) -> np.ndarray:
    """[M, N], a view of the block, of the same items. Raises ValueError when that isn't its size."""
    return block.numpy().view(_item(pool, heads)).reshape(pool.shape[0] * pool.shape[1], num_tokens)


def _item(pool: Tensor, heads: range) -> np.dtype:
    return np.dtype((np.void, len(heads) * pool.shape[5] * pool.element_size()))


def _num_tokens(pool: Tensor, pages: Sequence[int], num_tokens: int | None) -> int:
    return len(pages) * pool.shape[3] if num_tokens is None else num_tokens


def _runs(pages: Sequence[int], page_size: int, num_tokens: int) -> Iterator[tuple[slice, slice]]:
    """Neighbouring pages joined: their slots of the pool, and of the block, which may end within a page."""
    start = 0
    for index in range(1, len(pages) + 1):
        if index < len(pages) and pages[index] == pages[index - 1] + 1:
            continue
        first, end = start * page_size, min(index * page_size, num_tokens)
        if first >= end:
            return
        slot = pages[start] * page_size
        yield slice(slot, slot + end - first), slice(first, end)
        start = index
