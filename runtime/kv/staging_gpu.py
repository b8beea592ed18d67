"""`gather_heads` and `scatter_heads` on an accelerator: all planes and pages in one launch.

L layers, P pages, S slots per page, H KV heads of a pool, G heads of a slice, D head_dim, N tokens,
M = 2 * L planes (K and V of each layer).

A token's heads are one contiguous row in the pool and in the block, so both directions are one kernel that
copies rows of machine words and doesn't know what type they hold. It runs on the current stream.
"""

# A kernel's `constexpr` parameters take plain values, and Triton adds parameters of its own.
# pyright: reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kv.layout import KVLayout

WORDS_PER_PROGRAM = 512
MAX_ROW_PART = 256  # words of a row that one program copies
NUM_WARPS = 4
UPLOADS_IN_FLIGHT = 8  # page lists on their way while the host goes on

_WORD_TYPES = (torch.int64, torch.int32, torch.int16, torch.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """How rows of one width are copied: word views of the pool, and what the kernel is compiled for."""

    pool: Tensor
    size: int  # bytes of a word
    parts: int
    tokens: int
    plane_words: int
    shape: dict[str, int]


class HeadCopier:
    """Copies between one pool and staging blocks on its device. Not for two threads at a time."""

    def __init__(self, pool: Tensor, layout: KVLayout) -> None:
        """pool: [L, 2, P, S, H, D], contiguous, on the device."""
        self._layout = layout
        self._bytes = pool.view(-1).view(torch.uint8)
        self._uploads = _Uploads(layout.num_pages, pool.device)
        self._rows: dict[tuple[int, int], _Rows] = {}

    def page_list(self, pages: Sequence[int] | np.ndarray) -> Tensor:
        """int32, [len(pages)], on the device: made once for a chunk, used by each of its copies.

        Valid on the current stream until UPLOADS_IN_FLIGHT more lists are made. Doesn't wait for the device.
        """
        return self._uploads.upload(pages)

    def address_list(self, blocks: Sequence[Tensor]) -> Tensor:
        """int64, [len(blocks)]: where staging blocks lie, for `scatter`. Made once for blocks that stay."""
        return torch.tensor(
            [each.data_ptr() for each in blocks], dtype=torch.int64, device=self._bytes.device
        )

    def gather(self, pages: Tensor, heads: range, block: Tensor, *, num_tokens: int | None = None) -> None:
        """Copy one head range of the pages' first `num_tokens` slots (None: all) into the block.

        pages: a `page_list`; block: uint8, [block_bytes]; becomes [M, N, G, D].
        """
        align = _alignment(block.data_ptr())
        self._copy(pages, heads, block, 1, align, num_tokens, is_gather=True)

    def scatter(self, block: Tensor, pages: Tensor, heads: range, *, num_tokens: int | None = None) -> None:
        """Copy a block into one head range of the pages; the exact inverse of `gather`."""
        align = _alignment(block.data_ptr())
        self._copy(pages, heads, block, 1, align, num_tokens, is_gather=False)

    def scatter_all(
        self, addresses: Tensor, pages: Tensor, heads: range, *, num_tokens: int | None = None
    ) -> None:
        """Scatter the blocks of several senders at once, which fills whole slots of the pool.

        addresses: an `address_list` of blocks that begin on 16 bytes; heads: of the first block, those of
        each further one are the next as many.
        """
        self._copy(pages, heads, addresses, addresses.shape[0], 16, num_tokens, is_gather=False)

    def _copy(
        self,
        pages: Tensor,
        heads: range,
        blocks: Tensor,
        num_blocks: int,
        align: int,
        num_tokens: int | None,
        *,
        is_gather: bool,
    ) -> None:
        layout = self._layout
        count = pages.shape[0] * layout.page_size if num_tokens is None else num_tokens
        if not count:
            return
        rows = self._rows.get((len(heads), align)) or self._make_rows(len(heads), align)
        # What shares a slot of the pool comes next to each other, so that memory is written in long runs.
        grid = (rows.parts * num_blocks, -(-count // rows.tokens), 2 * layout.num_layers)
        _copy_rows[grid](
            rows.pool,
            blocks if num_blocks > 1 or rows.size == 1 else blocks.view(rows.pool.dtype),
            pages,
            count,
            rows.plane_words,
            heads.start,
            NUM_BLOCKS=num_blocks,
            IS_GATHER=is_gather,
            **rows.shape,
        )

    def _make_rows(self, num_heads: int, align: int) -> _Rows:
        """For the widest word in which the block, every head and every row begin and end."""
        layout = self._layout
        head_bytes = layout.head_dim * layout.dtype_bytes
        type_ = next(each for each in _WORD_TYPES if head_bytes % each.itemsize == align % each.itemsize == 0)
        row_words = num_heads * head_bytes // type_.itemsize
        part = min(row_words & -row_words, MAX_ROW_PART)
        tokens = max(1, WORDS_PER_PROGRAM // part)
        made = _Rows(
            pool=self._bytes.view(type_),
            size=type_.itemsize,
            parts=row_words // part,
            tokens=tokens,
            plane_words=layout.plane_bytes // type_.itemsize,
            shape={
                "HEAD_WORDS": head_bytes // type_.itemsize,
                "SLOT_WORDS": layout.page_bytes // layout.page_size // type_.itemsize,
                "ROW_WORDS": row_words,
                "PART": part,
                "PAGE_SIZE": layout.page_size,
                "TOKENS": tokens,
                "num_warps": NUM_WARPS,
            },
        )
        self._rows[num_heads, align] = made
        return made


def _alignment(address: int) -> int:
    """The largest power of two up to 16 that divides it."""
    return address & -address & 15 or 16


class _Uploads:
    """Page lists to the device without waiting for it: pinned buffers, used in turn."""

    def __init__(self, num_pages: int, device: torch.device) -> None:
        is_cuda = device.type == "cuda"
        shape = (UPLOADS_IN_FLIGHT, num_pages)
        self._host = torch.empty(shape, dtype=torch.int32, pin_memory=is_cuda)
        self._views = self._host.numpy()
        self._device = torch.empty(shape, dtype=torch.int32, device=device)
        self._sent = [torch.cuda.Event() if is_cuda else None for _ in range(UPLOADS_IN_FLIGHT)]
        self._turns = itertools.cycle(range(UPLOADS_IN_FLIGHT))

    def upload(self, pages: Sequence[int] | np.ndarray) -> Tensor:
        turn, count = next(self._turns), len(pages)
        sent = self._sent[turn]
        if sent is not None:
            sent.synchronize()
        self._views[turn, :count] = pages
        there = self._device[turn, :count]
        there.copy_(self._host[turn, :count], non_blocking=True)
        if sent is not None:
            sent.record()
        return there


@triton.jit
def _copy_rows(
    pool,  # words
    blocks,  # words, or int64: the addresses of several blocks
    pages,  # int32: page ids
    num_tokens,
    plane_words,
    first_head,
    HEAD_WORDS: tl.constexpr,
    SLOT_WORDS: tl.constexpr,
    ROW_WORDS: tl.constexpr,
    PART: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    TOKENS: tl.constexpr,
    NUM_BLOCKS: tl.constexpr,
    IS_GATHER: tl.constexpr,
):
    NUM_PARTS: tl.constexpr = ROW_WORDS // PART
    plane = tl.program_id(2).to(tl.int64)
    which = tl.program_id(0) // NUM_PARTS
    tokens = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    words = (tl.program_id(0) % NUM_PARTS) * PART + tl.arange(0, PART)
    is_there = tokens < num_tokens
    page = tl.load(pages + tokens // PAGE_SIZE, mask=is_there, other=0).to(tl.int64)
    slot = page * PAGE_SIZE + tokens % PAGE_SIZE
    heads = plane * plane_words + first_head * HEAD_WORDS + which * ROW_WORDS
    in_pool = pool + heads + (slot * SLOT_WORDS)[:, None] + words[None, :]
    if NUM_BLOCKS == 1:
        block = blocks
    else:
        block = tl.multiple_of(tl.load(blocks + which).to(tl.pointer_type(pool.dtype.element_ty)), 16)
    in_block = block + ((plane * num_tokens + tokens) * ROW_WORDS)[:, None] + words[None, :]
    mask = is_there[:, None]
    source, target = (in_pool, in_block) if IS_GATHER else (in_block, in_pool)
    # Nothing is read twice: what comes through the caches should leave them at once.
    moved = tl.load(source, mask=mask, eviction_policy="evict_first")
    tl.store(target, moved, mask=mask, eviction_policy="evict_first")
