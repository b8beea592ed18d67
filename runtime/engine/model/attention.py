"""Attention over the paged pool for one step: write the new K and V, then read each sequence's context.

N tokens of this step, H query heads, G KV heads, R = H / G, D head_dim, T context tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from runtime.engine.compute import Chunk
from runtime.kv.pool import KVPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One sequence's part of a step: which rows are its queries, and where its context lies."""

    rows: slice  # of the step's N tokens
    context_len: int  # T, the new tokens included
    slots: slice | None  # the context as one run of pool slots, read in place
    pages: Tensor | None  # else its pages, [num_pages] int64, to gather
    mask: Tensor | None  # [rows, T], True where a query may look; None: no query is hidden anything by it
    is_causal: bool  # the rows are the whole context, the plain triangle


class StepAttention:
    """All sequences of one step; made once, used by every layer."""

    def __init__(self, chunks: Sequence[Chunk], pool: KVPool) -> None:
        page_size, device = pool.layout.page_size, pool.device
        self._slots = torch.tensor(
            [slot for chunk in chunks for slot in _new_slots(chunk, page_size)],
            dtype=torch.int64,
            device=device,
        )
        self._segments: list[Segment] = []
        start = 0
        for chunk in chunks:
            end = start + len(chunk.token_ids)
            self._segments.append(_segment(chunk, slice(start, end), page_size, device))
            start = end

    def attend(
        self,
        queries: Tensor,
        keys_values: Tensor,
        plane: Tensor,
        *,
        scale: float | None = None,
        value_dim: int | None = None,
    ) -> Tensor:
        """Write K and V to their slots, then attend; gives [N, H * D].

        queries: [N, H, D]; keys_values: [N, 2, G, D]; plane: one layer of the pool, [2, P, S, G, D], written.
        Where both have one plane instead of two, the first `value_dim` elements of the keys are the values.
        `scale` of the scores, if it is not that of D.
        """
        if not self._segments:
            return queries.flatten(1)
        num_groups, head_dim = plane.shape[3:]
        by_slot = plane.view(len(plane), -1, num_groups, head_dim)
        by_slot.index_copy_(1, self._slots, keys_values.transpose(0, 1))
        by_head = by_slot.transpose(1, 2)  # [2, G, P S, D]
        grouped = queries.view(len(queries), num_groups, -1, head_dim)  # [N, G, R, D]
        # One call per sequence: reading the context in place beats gathering all into one padded batch.
        outputs = [
            _attend_one(grouped[segment.rows], _context(segment, plane, by_head), segment, scale, value_dim)
            for segment in self._segments
        ]
        return torch.cat(outputs).view(len(queries), -1)


def _attend_one(
    queries: Tensor, context: Tensor, segment: Segment, scale: float | None, value_dim: int | None
) -> Tensor:
    """One sequence. queries: [n, G, R, D]; context: K and V, [2, G, T, D]; gives [n, G, R, D]."""
    keys = context[:1]  # [1, G, T, D]
    values = context[1:] if len(context) == 2 else keys[..., :value_dim]
    if len(queries) == 1:
        # The R heads of a group share their keys and hide nothing from each other: R queries of one head.
        return scaled_dot_product_attention(queries, keys, values, scale=scale)
    repeats = queries.shape[2]
    out = scaled_dot_product_attention(
        queries.permute(1, 2, 0, 3),  # [G, R, n, D]
        keys.transpose(0, 1).expand(-1, repeats, -1, -1),  # a view: no copy of the keys per query head
        values.transpose(0, 1).expand(-1, repeats, -1, -1),
        attn_mask=segment.mask,
        is_causal=segment.is_causal,
        scale=scale,
    )
    return out.permute(2, 0, 1, 3)


def _context(segment: Segment, plane: Tensor, by_head: Tensor) -> Tensor:
    """Give K and V of the whole context, [2, G, T, D]: a view of the pool, or gathered page by page."""
    if segment.slots is not None:
        return by_head[:, :, segment.slots]
    assert segment.pages is not None
    gathered = plane.index_select(1, segment.pages).view(len(plane), -1, *plane.shape[3:])
    return gathered[:, : segment.context_len].transpose(1, 2)


def _new_slots(chunk: Chunk, page_size: int) -> list[int]:
    end = chunk.start_pos + len(chunk.token_ids)
    return [
        chunk.pages[pos // page_size] * page_size + pos % page_size for pos in range(chunk.start_pos, end)
    ]


def _segment(chunk: Chunk, rows: slice, page_size: int, device: torch.device) -> Segment:
    num_rows = len(chunk.token_ids)
    context_len = chunk.start_pos + num_rows
    pages = chunk.pages[: -(-context_len // page_size)]
    first = pages[0]
    is_run = pages == tuple(range(first, first + len(pages)))
    has_past = chunk.start_pos > 0
    mask = None
    if has_past and num_rows > 1:
        mask = torch.ones(num_rows, context_len, dtype=torch.bool, device=device).tril_(chunk.start_pos)
    return Segment(
        rows=rows,
        context_len=context_len,
        slots=slice(first * page_size, first * page_size + context_len) if is_run else None,
        pages=None if is_run else torch.tensor(pages, dtype=torch.int64, device=device),
        mask=mask,
        is_causal=num_rows > 1 and not has_past,
    )
