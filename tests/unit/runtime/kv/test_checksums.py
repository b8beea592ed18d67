from __future__ import annotations

import random
from dataclasses import replace

import pytest

from runtime.kv.checksums import first_difference, layer_checksums
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
    one = layer_checksums(memoryview(ours), _LAYOUT, [5, 0, 1], 10)
    two = layer_checksums(memoryview(theirs), _OTHER, [2, 9, 10], 10)
    assert len(one) == 3
    assert first_difference(one, two) is None


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("is_value", [False, True])
def test_one_changed_bit_names_its_layer(layer, is_value):
    ours, theirs = _copied()
    theirs[_OTHER.plane_offset(layer=layer, is_value=is_value) + 9 * _OTHER.page_bytes + 3] ^= 1
    one = layer_checksums(memoryview(ours), _LAYOUT, [5, 0, 1], 10)
    two = layer_checksums(memoryview(theirs), _OTHER, [2, 9, 10], 10)
    assert first_difference(one, two) == layer


def test_pages_in_another_order_differ():
    pool = memoryview(_pool(_LAYOUT, 1))
    assert layer_checksums(pool, _LAYOUT, [0, 1], 8) != layer_checksums(pool, _LAYOUT, [1, 0], 8)


def test_slots_behind_the_last_token_do_not_count():
    pool = _pool(_LAYOUT, 1)
    before = layer_checksums(memoryview(pool), _LAYOUT, [3], 2)
    pool[3 * _LAYOUT.page_bytes + 2 * 16] ^= 0xFF  # slot 2, where a token takes 16 bytes
    assert layer_checksums(memoryview(pool), _LAYOUT, [3], 2) == before
    assert layer_checksums(memoryview(pool), _LAYOUT, [3], 3) != before


def test_a_missing_layer_is_a_difference():
    assert first_difference([1, 2], [1, 2, 3]) == 2
