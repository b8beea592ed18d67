"""The paged KV pool: one allocation that holds every layer's keys and values, and the allocator of its pages.

L layers, P pages, S slots per page, H KV heads, D head_dim.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import torch
from torch import Tensor

from runtime.kv.layout import KVLayout
from runtime.kv.memory import Memory, memory_of


class KVPool:
    """All KV of one engine. The engine thread writes; a transfer touches only pages handed to it."""

    def __init__(self, layout: KVLayout, *, device: torch.device, dtype: torch.dtype) -> None:
        if dtype.itemsize != layout.dtype_bytes:
            raise ValueError(
                f"the layout has {layout.dtype_bytes} bytes per element, {dtype} has {dtype.itemsize}"
            )
        self.layout = layout
        # Not zeroed: no slot is read before it is written, and the untouched part costs no memory.
        self._tensor = torch.empty(
            (
                layout.num_layers,
                layout.planes_per_layer,
                layout.num_pages,
                layout.page_size,
                layout.num_kv_heads,
                layout.head_dim,
            ),
            dtype=dtype,
            device=device,
        )

    @property
    def tensor(self) -> Tensor:
        """The whole pool, [L, 2, P, S, H, D]: K at index 0 of the second dimension, V at 1.

        With one plane per layer, [L, 1, P, S, 1, D]: latent rows.
        """
        return self._tensor

    @property
    def device(self) -> torch.device:
        return self._tensor.device

    @property
    def dtype(self) -> torch.dtype:
        return self._tensor.dtype

    def keys(self, layer: int) -> Tensor:
        """One layer's keys, [P, S, H, D]; writes go to the pool."""
        return self._tensor[layer, 0]

    def values(self, layer: int) -> Tensor:
        """One layer's values, [P, S, H, D]; writes go to the pool."""
        return self._tensor[layer, 1]

    def as_bytes(self) -> Tensor:
        """The whole pool as uint8, [layout.total_bytes], on its device; offsets are those of `KVLayout`."""
        return self._tensor.view(-1).view(torch.uint8)

    def memory(self) -> Memory:
        """The whole pool as writable bytes, where they lie."""
        return memory_of(self._tensor)


class PageAllocator:
    """Hands out page ids, in contiguous runs where it can. Engine thread only.

    A sequence whose pages are neighbours is read in place by attention; scattered pages have to be gathered.
    So a new run goes to the middle of the largest gap, which leaves the sequence before it room to grow, and
    `after` asks for the very next page.
    """

    def __init__(self, num_pages: int) -> None:
        self._num_pages = num_pages
        self._num_free = num_pages
        self._is_free = bytearray(b"\x01") * num_pages
        self._starts = [0] if num_pages else []  # of the free runs, sorted
        self._ends = {0: num_pages} if num_pages else {}  # start -> one past the end

    @property
    def num_pages(self) -> int:
        return self._num_pages

    @property
    def num_free(self) -> int:
        return self._num_free

    def alloc(self, num: int, *, after: int | None = None) -> tuple[int, ...] | None:
        """Take `num` pages, or none and give None. `after` is the last page of a sequence that grows."""
        if num < 0:
            raise ValueError(f"cannot allocate {num} pages")
        if num > self._num_free:
            return None
        pages: list[int] = []
        while len(pages) < num:
            wanted = num - len(pages)
            neighbour = pages[-1] if pages else after
            start, end = self._run_for(wanted, None if neighbour is None else neighbour + 1)
            self._take(start, end)
            pages += range(start, end)
        return tuple(pages)

    def free(self, pages: Sequence[int]) -> None:
        """Give pages back. A page that is foreign, free or named twice is an error, and none is freed."""
        ordered = sorted(pages)
        for position, page in enumerate(ordered):
            if not 0 <= page < self._num_pages:
                raise ValueError(f"page {page} is foreign, the pool has pages 0 to {self._num_pages - 1}")
            if self._is_free[page] or (position and ordered[position - 1] == page):
                raise ValueError(f"page {page} is freed twice")
        for start, end in _runs(ordered):
            self._give(start, end)

    def _run_for(self, wanted: int, next_page: int | None) -> tuple[int, int]:
        """Choose a part of one free run, of `wanted` pages or as many as the best run has."""
        if next_page is not None and next_page in self._ends:
            return next_page, min(self._ends[next_page], next_page + wanted)
        largest = max(self._starts, key=lambda start: self._ends[start] - start)
        size = self._ends[largest] - largest
        # The pages before a run belong to a sequence that may grow; leave it the first half of what is spare.
        is_bounded = largest > 0
        offset = (size - wanted) // 2 if is_bounded and size > wanted else 0
        return largest + offset, largest + min(size, offset + wanted)

    def _take(self, start: int, end: int) -> None:
        """Cut [start, end), which lies inside one free run, out of it."""
        index = bisect_left(self._starts, start + 1) - 1
        run_start = self._starts.pop(index)
        run_end = self._ends.pop(run_start)
        for left, right in ((end, run_end), (run_start, start)):
            if left < right:
                self._starts.insert(index, left)
                self._ends[left] = right
        self._is_free[start:end] = bytes(end - start)
        self._num_free -= end - start

    def _give(self, start: int, end: int) -> None:
        """Add [start, end) to the free runs and join it with its neighbours."""
        self._is_free[start:end] = b"\x01" * (end - start)
        self._num_free += end - start
        index = bisect_left(self._starts, start)
        if end in self._ends:
            end = self._ends.pop(self._starts.pop(index))
        if index and self._ends[self._starts[index - 1]] == start:
            self._ends[self._starts[index - 1]] = end
            return
        self._starts.insert(index, start)
        self._ends[start] = end


def _runs(ordered_pages: Sequence[int]) -> list[tuple[int, int]]:
    """Join neighbours into [start, end) runs."""
    runs: list[tuple[int, int]] = []
    for page in ordered_pages:
        if runs and runs[-1][1] == page:
            runs[-1] = (runs[-1][0], page + 1)
        else:
            runs.append((page, page + 1))
    return runs
