"""The prefill side of staging: gathers head slices into its buffer, and sends each block as one write."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgpack
import torch
from torch import Tensor

from runtime.kv.head_copies import HeadCopies, head_copies
from runtime.kv.layout import KVLayout
from runtime.kv.memory import Memory, memory_of
from runtime.kv.reshard import HeadSlice
from runtime.kv.ring import Claim, Ring
from runtime.kv.staging_copy import block_bytes
from runtime.transfer.base import STAGING, SendSession, TransferBackend, TransferError
from runtime.transfer.staging.session import StagedRoute, StagedSession


class StagingSender:
    """One buffer for all receivers: a slot is held from the gathering to the end of the write."""

    def __init__(
        self,
        pool: Memory,
        layout: KVLayout,
        backend: TransferBackend,
        *,
        buffer_bytes: int,
        slot_bytes: int,
        stall_timeout_s: float,
    ) -> None:
        """pool: all bytes of the KV pool; the buffer lies on its device.

        Raises RingError when the buffer holds no slot.
        """
        self._copies = head_copies(pool, layout)
        self._layout = layout
        self._stall_timeout_s = stall_timeout_s
        self._ring: Ring[object] = Ring(num_bytes=buffer_bytes, slot_bytes=slot_bytes)
        self._memory = torch.empty(
            self._ring.num_slots * slot_bytes, dtype=torch.uint8, device=self._copies.device
        )
        backend.register(STAGING, memory_of(self._memory))
        self._on_grant: dict[Claim[object], Callable[[], object]] = {}
        self._lock = threading.Lock()

    @property
    def num_free_slots(self) -> int:
        return self._ring.num_free

    @property
    def num_slots(self) -> int:
        return self._ring.num_slots

    def connect(self, endpoint: bytes, session: SendSession, heads: HeadSlice) -> StagedSession:
        """Stage what goes to one receiver. `session` is the backend's to it, and stays the caller's.

        Raises TransferError, also when a slot holds not even one page.
        """
        try:
            host, port, slot_bytes = msgpack.unpackb(endpoint)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise TransferError(f"not an endpoint of a staging pool: {endpoint!r:.80}") from error
        if not (isinstance(host, str) and isinstance(port, int) and isinstance(slot_bytes, int)):
            raise TransferError(f"not an endpoint of a staging pool: {endpoint!r:.80}")
        size = min(slot_bytes, self._ring.slot_bytes)
        page = block_bytes(self._layout, num_heads=heads.num_heads, num_tokens=self._layout.page_size)
        if size < page:
            raise TransferError(
                f"a staging block has {size} bytes, {heads.num_heads} heads of one page take {page}"
            )
        route = StagedRoute(
            address=(host, port),
            heads=heads,
            pages_per_block=size // page,
            stall_timeout_s=self._stall_timeout_s,
        )
        return StagedSession(route, self, session)

    # For sessions.

    @property
    def copies(self) -> HeadCopies:
        return self._copies

    @property
    def layout(self) -> KVLayout:
        return self._layout

    def claim(self, owner: object, on_grant: Callable[[], object]) -> Claim[object]:
        """Wait for a slot; `on_grant` is called when the claim has it, maybe at once, and must not block."""
        with self._lock:
            claim, granted = self._ring.claim(owner)
            self._on_grant[claim] = on_grant
            calls = self._take_calls(granted)
        for call in calls:
            call()
        return claim

    def release(self, claim: Claim[object]) -> None:
        with self._lock:
            self._on_grant.pop(claim, None)
            calls = self._take_calls(self._ring.release(claim))
        for call in calls:
            call()

    def slot(self, claim: Claim[object], num_bytes: int) -> tuple[int, Tensor]:
        """Where a granted claim's slot begins, and its first bytes."""
        with self._lock:
            start = self._ring.offset(claim)
        return start, self._memory[start : start + num_bytes]

    def _take_calls(self, granted: list[Claim[object]]) -> list[Callable[[], object]]:
        return [self._on_grant.pop(claim) for claim in granted]
