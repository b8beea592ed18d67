"""From pages to byte ranges: what has to be copied where, and what a receiver lets in. Pure arithmetic.

Both sides of a transfer have the same layout except for `num_pages`, so one page lies at different offsets in
each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from runtime.kv.layout import KVLayout


class PageRun(NamedTuple):
    """Pages that are neighbours on both sides, so that they move as one piece per layer and K or V."""

    src_page: int
    dst_page: int
    num_pages: int


class Write(NamedTuple):
    """One contiguous copy; offsets are bytes from the start of the region on either side."""

    src_offset: int
    dst_offset: int
    num_bytes: int


def join_runs(src_pages: Sequence[int], dst_pages: Sequence[int]) -> list[PageRun]:
    """Pair the pages up in order, and join those whose successors are neighbours on both sides."""
    pairs = list(zip(src_pages, dst_pages, strict=True))
    if not pairs:
        return []
    breaks = [
        index for index, (one, two) in enumerate(pairwise(pairs), start=1) if two != (one[0] + 1, one[1] + 1)
    ]
    starts = [0, *breaks]
    ends = [*breaks, len(pairs)]
    return [PageRun(*pairs[start], end - start) for start, end in zip(starts, ends, strict=True)]


def page_writes(runs: Iterable[PageRun], *, src: KVLayout, dst: KVLayout) -> list[Write]:
    """The copies that move the runs of all layers, K and V, ordered by destination plane."""
    runs = list(runs)
    return [
        Write(
            src_offset=src.plane_offset(layer=layer, is_value=is_value) + run.src_page * src.page_bytes,
            dst_offset=dst.plane_offset(layer=layer, is_value=is_value) + run.dst_page * dst.page_bytes,
            num_bytes=run.num_pages * src.page_bytes,
        )
        for layer in range(src.num_layers)
        for is_value in (False, True)[: src.planes_per_layer]
        for run in runs
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageWindow:
    """The byte ranges of some pages of a pool: what the sender of one room may write."""

    layout: KVLayout
    pages: frozenset[int]

    def covers(self, offset: int, num_bytes: int) -> bool:
        """Whether the range lies in one plane, and touches none but the window's pages."""
        if offset < 0 or num_bytes < 1 or offset + num_bytes > self.layout.total_bytes:
            return False
        start = offset % self.layout.plane_bytes
        end = start + num_bytes
        if end > self.layout.plane_bytes:
            return False
        page_bytes = self.layout.page_bytes
        return all(page in self.pages for page in range(start // page_bytes, -(-end // page_bytes)))
