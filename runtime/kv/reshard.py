"""Who sends which KV heads to whom when attention is split differently on the two sides. Pure arithmetic.

Attention tensor parallelism gives each rank a contiguous range of KV heads. With fewer heads than ranks,
neighbouring ranks hold copies of one head. A latent (MLA) cache is one row per slot, whole on every rank: in
this arithmetic, one head. The mapping of heads is SGLang's (`compute_head_slice_params` in 0.5.23,
disaggregation/common/staging_buffer.py); unlike there, of several copies of a head exactly one is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class ReshardError(ValueError):
    """Heads that cannot be spread evenly over the ranks; the text is for the operator."""


class KVKind(StrEnum):
    """What a slot of the pool holds."""

    HEADS = "mha"  # keys and values per head; GQA too
    LATENT = "mla"  # one compressed row, not split by heads


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSlice:
    """Heads that one prefill rank sends to one decode rank; offsets count heads within each rank's pool."""

    prefill_rank: int  # attn_tp_rank
    decode_rank: int  # attn_tp_rank
    src_head: int
    dst_head: int
    num_heads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReshardTable:
    """All slices, ordered by decode rank, then by head: each head of each decode rank comes exactly once."""

    slices: tuple[HeadSlice, ...]
    prefill_heads: int  # KV heads in the pool of one prefill rank
    decode_heads: int  # KV heads in the pool of one decode rank

    @property
    def is_whole(self) -> bool:
        """Whether slots travel as they lie: a slice is all that a rank has, on both sides."""
        return all(one.num_heads == self.prefill_heads == self.decode_heads for one in self.slices)

    def into(self, decode_rank: int) -> tuple[HeadSlice, ...]:
        """What a decode rank waits for; one slice per sender."""
        return tuple(one for one in self.slices if one.decode_rank == decode_rank)

    def out_of(self, prefill_rank: int) -> tuple[HeadSlice, ...]:
        """What a prefill rank sends; empty when other ranks hold copies of its head."""
        return tuple(one for one in self.slices if one.prefill_rank == prefill_rank)

    def between(self, prefill_rank: int, decode_rank: int) -> HeadSlice | None:
        """The one slice that goes from one rank to another, or None."""
        return next((one for one in self.into(decode_rank) if one.prefill_rank == prefill_rank), None)


def reshard(
    *, prefill_attn_tp: int, decode_attn_tp: int, num_kv_heads: int, kind: KVKind = KVKind.HEADS
) -> ReshardTable:
    """The table for one attention group on each side; `num_kv_heads` counts the model's, unsplit.

    Attention-DP ranks of either side each form such a group of their own. Raises ReshardError.
    """
    total = 1 if kind is KVKind.LATENT else num_kv_heads
    slices = [
        one
        for decode_rank in range(decode_attn_tp)
        for one in _slices_into(decode_rank, prefill_attn_tp, decode_attn_tp, total)
    ]
    return ReshardTable(
        slices=tuple(slices),
        prefill_heads=len(heads_of(0, prefill_attn_tp, total)),
        decode_heads=len(heads_of(0, decode_attn_tp, total)),
    )


def heads_of(attn_tp_rank: int, attn_tp_size: int, num_kv_heads: int) -> range:
    """The KV heads of the model that an attention rank holds. Raises ReshardError for an uneven split."""
    copies = num_copies(attn_tp_size, num_kv_heads)
    size = max(1, num_kv_heads // attn_tp_size)
    first = attn_tp_rank // copies * size
    return range(first, first + size)


def num_copies(attn_tp_size: int, num_kv_heads: int) -> int:
    """On how many neighbouring ranks each head lies. Raises ReshardError for an uneven split."""
    if attn_tp_size < 1 or num_kv_heads < 1 or (num_kv_heads % attn_tp_size and attn_tp_size % num_kv_heads):
        raise ReshardError(
            f"{num_kv_heads} KV heads cannot be spread evenly over {attn_tp_size} attention ranks: "
            "one of the numbers must divide the other"
        )
    return max(1, attn_tp_size // num_kv_heads)


def _slices_into(decode_rank: int, prefill_tp: int, decode_tp: int, total: int) -> Iterator[HeadSlice]:
    wanted = heads_of(decode_rank, decode_tp, total)
    src_copies, dst_copies = num_copies(prefill_tp, total), num_copies(decode_tp, total)
    # Receivers of the same head are dealt out over its senders in order, so equal splits pair up one to one.
    src_copy = decode_rank % dst_copies * src_copies // dst_copies
    size = len(heads_of(0, prefill_tp, total))
    for group in range(wanted.start // size, (wanted.stop - 1) // size + 1):
        first, end = max(wanted.start, group * size), min(wanted.stop, (group + 1) * size)
        yield HeadSlice(
            prefill_rank=group * src_copies + src_copy,
            decode_rank=decode_rank,
            src_head=first - group * size,
            dst_head=first - wanted.start,
            num_heads=end - first,
        )
