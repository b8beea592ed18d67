"""Copies between a pool and staging blocks, on whatever device both lie; from several threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from runtime.kv.layout import KVLayout
from runtime.kv.memory import Memory
from runtime.kv.staging_copy import gather_heads, pool_tensor, scatter_heads


class HeadCopies(Protocol):
    """The copies of one pool. Each is done when its call returns."""

    @property
    def device(self) -> torch.device:
        """Where blocks have to lie."""
        ...

    def gather(self, pages: Sequence[int], heads: range, block: Tensor, *, num_tokens: int) -> None:
        """Copy one head range of the pages' first `num_tokens` slots into the block, uint8, [block_bytes]."""
        ...

    def scatter(self, block: Tensor, pages: Sequence[int], heads: range, *, num_tokens: int) -> None:
        """Copy a block that was gathered into one head range of the pages; the exact inverse."""
        ...


def head_copies(pool: Memory, layout: KVLayout) -> HeadCopies:
    tensor = pool_tensor(pool, layout)
    return HostCopies(tensor) if tensor.device.type == "cpu" else DeviceCopies(tensor, layout)


class HostCopies:
    """By numpy, on the calling thread."""

    def __init__(self, pool: Tensor) -> None:
        """pool: [L, 2, P, S, H, D]"""
        self._pool = pool

    @property
    def device(self) -> torch.device:
        return self._pool.device

    def gather(self, pages: Sequence[int], heads: range, block: Tensor, *, num_tokens: int) -> None:
        gather_heads(self._pool, pages, heads, block, num_tokens=num_tokens)

    def scatter(self, block: Tensor, pages: Sequence[int], heads: range, *, num_tokens: int) -> None:
        scatter_heads(block, self._pool, pages, heads, num_tokens=num_tokens)


class DeviceCopies:
    """By one kernel, on a stream beside the model's. Threads launch in turn and wait together."""

    def __init__(self, pool: Tensor, layout: KVLayout) -> None:
        """pool: [L, 2, P, S, H, D], on a CUDA device."""
        from runtime.kv.staging_gpu import HeadCopier  # Triton is only there with an accelerator

        self._device = pool.device
        self._copier = HeadCopier(pool, layout)
        self._stream = torch.cuda.Stream(pool.device)
        self._lock = threading.Lock()

    @property
    def device(self) -> torch.device:
        return self._device

    def gather(self, pages: Sequence[int], heads: range, block: Tensor, *, num_tokens: int) -> None:
        with self._lock, torch.cuda.stream(self._stream):
            self._copier.gather(self._copier.page_list(pages), heads, block, num_tokens=num_tokens)
            done = self._stream.record_event()
        done.synchronize()

    def scatter(self, block: Tensor, pages: Sequence[int], heads: range, *, num_tokens: int) -> None:
        with self._lock, torch.cuda.stream(self._stream):
            self._copier.scatter(block, self._copier.page_list(pages), heads, num_tokens=num_tokens)
            done = self._stream.record_event()
        done.synchronize()
