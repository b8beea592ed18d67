"""Checksums of one request's KV, by layer and head, to prove that it arrived as it left.

By head, because a head is what ranks exchange: its bytes are the same on every rank that holds it, however
many other heads lie beside it there. CRC-32, because the enemy is a wrong offset or a torn page, not a
forger: zlib's runs at 1.9 GiB/s per core where BLAKE2b reaches 0.3, and it catches swapped pages too, since
it depends on order.

L layers, P pages, S slots per page, G KV heads of one rank, B bytes of one head in one slot.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from runtime.kv.layout import KVLayout
from runtime.kv.memory import DeviceMemory, Memory


def head_checksums(pool: Memory, layout: KVLayout, pages: Sequence[int], num_tokens: int) -> tuple[int, ...]:
    """One CRC-32 for each layer and head of a rank's pool, layer by layer: over the head's K, then its V.

    pool: all of it as bytes, read only. The first `num_tokens` slots of `pages` count, in token order; what
    lies behind them is left out: nobody reads it.
    """
    by_page = _used_pages(pool, layout, pages[: layout.num_pages_for(num_tokens)])
    checksums: list[int] = []
    for planes in by_page:
        slots = planes.reshape(planes.shape[0], -1, *planes.shape[-2:])
        by_head = slots[:, :num_tokens].transpose(2, 0, 1, 3)  # [G, K and V, tokens, B]
        checksums += [zlib.crc32(np.ascontiguousarray(head).data) for head in by_head]
    return tuple(checksums)


def _used_pages(pool: Memory, layout: KVLayout, pages: Sequence[int]) -> Iterator[np.ndarray]:
    """The pages in host memory, [K and V, pages, S, G, B], layer by layer."""
    shape = (
        *(layout.num_layers, -1, layout.num_pages),
        *(layout.page_size, layout.num_kv_heads, layout.head_bytes),
    )
    if isinstance(pool, DeviceMemory):
        used = torch.tensor(pages, device=pool.tensor.device)
        for layer in pool.tensor.view(shape):
            yield layer.index_select(1, used).cpu().numpy()
    else:
        for planes in np.frombuffer(pool, dtype=np.uint8).reshape(shape):
            yield planes[:, list(pages)]
