"""Arithmetic of the paged KV pool: sizes and byte offsets, no tensors, no I/O.

The pool is one allocation, laid out `[layer, k_or_v, page, slot, kv_head, head_dim]`. One page of one layer's
K (or V) is therefore one contiguous run, and runs of neighbouring pages join into one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """Shape of one rank's KV pool. The sides of a transfer may differ in `num_pages` and `num_kv_heads`."""

    num_layers: int
    num_pages: int
    page_size: int  # token slots per page
    num_kv_heads: int
    head_dim: int
    dtype_bytes: int
    planes_per_layer: int = 2  # K and V; 1 where a slot is one latent row (MLA), of one head

    @property
    def head_bytes(self) -> int:
        """Bytes of one head of one slot in one layer's K or V."""
        return self.head_dim * self.dtype_bytes

    @property
    def page_bytes(self) -> int:
        """Bytes of one page of one layer's K or V."""
        return self.page_size * self.num_kv_heads * self.head_bytes

    @property
    def plane_bytes(self) -> int:
        """Bytes of one layer's whole K or V, or of its latent rows."""
        return self.num_pages * self.page_bytes

    @property
    def total_bytes(self) -> int:
        return self.planes_per_layer * self.num_layers * self.plane_bytes

    @property
    def token_bytes(self) -> int:
        """Bytes that one token takes over all layers."""
        return self.planes_per_layer * self.num_layers * self.page_bytes // self.page_size

    def plane_offset(self, *, layer: int, is_value: bool) -> int:
        """Byte offset of one layer's K (or V) plane from the start of the pool."""
        return (self.planes_per_layer * layer + int(is_value)) * self.plane_bytes

    def num_pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size)
