from __future__ import annotations

import random
from dataclasses import replace

import pytest

from runtime.kv.checksums import head_checksums
from runtime.kv.layout import KVLayout
from runtime.kv.page_runs import join_runs, page_writes

_LAYOUT = KVLayout(num_layers=3, num_pages=8, page_size=4, num_kv_heads=2, head_dim=4, dtype_bytes=2)
_OTHER = replace(_LAYOUT, num_pages=11)


def _pool(layout: KVLayout, seed: int) -> bytearray:
    return bytearray(random.Random(seed).randbytes(layout.total_bytes))


def _copied() -> tuple[bytearray, bytearray]:
    ours, theirs = _pool(_LAYOUT, 1), _pool(_OTHER, 2)
    for write in page_writes(join_runs([5, 0, 1], [2, 9, 10]), src=_LAYOUT, dst=_OTHER):
        end = write.src_offset + write.num_bytes
        theirs[write.dst_offset : write.dst_offset + write.num_bytes] = ours[write.src_offset : end]
    return ours, theirs


def test_a_copy_in_other_pages_of_another_pool_has_the_same_checksums():
    ours, theirs = _copied()
    one = head_checksums(memoryview(ours), _LAYOUT, [5, 0, 1], 10)
    assert len(one) == 3 * 2
    assert one == head_checksums(memoryview(theirs), _OTHER, [2, 9, 10], 10)


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("is_value", [False, True])
@pytest.mark.parametrize("head", [0, 1])
def test_one_changed_bit_changes_the_checksum_of_its_layer_and_head_alone(layer, is_value, head):
    ours, theirs = _copied()
    place = _OTHER.plane_offset(layer=layer, is_value=is_value) + 9 * _OTHER.page_bytes
    theirs[place + head * _OTHER.head_bytes + 3] ^= 1
    one = head_checksums(memoryview(ours), _LAYOUT, [5, 0, 1], 10)
    two = head_checksums(memoryview(theirs), _OTHER, [2, 9, 10], 10)
    assert [place for place in range(6) if one[place] != two[place]] == [2 * layer + head]


def test_a_head_has_the_same_checksum_among_other_heads():
    whole, half = _pool(_LAYOUT, 1), replace(_LAYOUT, num_kv_heads=1)
    second = bytearray()
    for start in range(_LAYOUT.head_bytes, len(whole), 2 * _LAYOUT.head_bytes):
        second += whole[start : start + _LAYOUT.head_bytes]
    one = head_checksums(memoryview(whole), _LAYOUT, [5, 0, 1], 10)
    assert head_checksums(memoryview(second), half, [5, 0, 1], 10) == one[1::2]


def test_pages_in_another_order_differ():
    pool = memoryview(_pool(_LAYOUT, 1))
    assert head_checksums(pool, _LAYOUT, [0, 1], 8) != head_checksums(pool, _LAYOUT, [1, 0], 8)


def test_slots_behind_the_last_token_do_not_count():
    pool = _pool(_LAYOUT, 1)
    before = head_checksums(memoryview(pool), _LAYOUT, [3], 2)
    pool[3 * _LAYOUT.page_bytes + 2 * 16] ^= 0xFF  # slot 2, where a token takes 16 bytes
    assert head_checksums(memoryview(pool), _LAYOUT, [3], 2) == before
    assert head_checksums(memoryview(pool), _LAYOUT, [3], 3) != before
