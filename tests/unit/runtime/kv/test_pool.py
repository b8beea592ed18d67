"""Pages are handed out once, in runs; the pool's bytes lie where the layout says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtime.kv.layout import KVLayout
from runtime.kv.pool import KVPool, PageAllocator

LAYOUT = KVLayout(num_layers=2, num_pages=5, page_size=4, num_kv_heads=3, head_dim=8, dtype_bytes=2)


def _pool() -> KVPool:
    return KVPool(LAYOUT, device=torch.device("cpu"), dtype=torch.bfloat16)


def test_a_page_lies_at_the_byte_offset_that_the_layout_computes():
    pool = _pool()
    pool.as_bytes().zero_()
    pool.values(1)[3].fill_(1.0)
    written = pool.as_bytes().nonzero().flatten()
    start = LAYOUT.plane_offset(layer=1, is_value=True) + 3 * LAYOUT.page_bytes
    assert start <= int(written.min()) < start + 2
    assert start + LAYOUT.page_bytes - 2 <= int(written.max()) < start + LAYOUT.page_bytes


def test_keys_come_before_values_and_layers_follow_each_other():
    pool = _pool()
    addresses = [plane.data_ptr() for layer in (0, 1) for plane in (pool.keys(layer), pool.values(layer))]
    offsets = [LAYOUT.plane_offset(layer=layer, is_value=is_value) for layer in (0, 1) for is_value in (0, 1)]
    assert [address - addresses[0] for address in addresses] == offsets


def test_bytes_written_through_memory_are_seen_by_the_tensor():
    pool = _pool()
    memory = pool.memory()
    assert (memory.nbytes, memory.format, memory.readonly) == (LAYOUT.total_bytes, "B", False)
    one = torch.ones(1, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes()
    memory[: LAYOUT.page_bytes] = one * (LAYOUT.page_bytes // 2)
    assert torch.equal(pool.keys(0)[0], torch.ones(4, 3, 8, dtype=torch.bfloat16))


def test_a_dtype_of_another_width_than_the_layout_is_refused():
    with pytest.raises(ValueError, match="2 bytes per element"):
        KVPool(LAYOUT, device=torch.device("cpu"), dtype=torch.float32)


def test_an_allocation_is_one_run_where_one_is_free():
    allocator = PageAllocator(100)
    pages = allocator.alloc(30)
    assert pages is not None
    assert pages == tuple(range(pages[0], pages[0] + 30))


def test_all_or_nothing():
    allocator = PageAllocator(10)
    assert allocator.alloc(11) is None
    assert allocator.num_free == 10
    assert sorted(allocator.alloc(10) or ()) == list(range(10))
    assert allocator.alloc(1) is None
    assert allocator.alloc(0) == ()


def test_scattered_pages_are_used_when_no_run_is_long_enough():
    allocator = PageAllocator(10)
    pages = allocator.alloc(10)
    assert pages is not None
    allocator.free([1, 3, 5, 6])
    assert sorted(allocator.alloc(4) or ()) == [1, 3, 5, 6]


def test_sequences_that_grow_by_turns_stay_contiguous():
    allocator = PageAllocator(200)
    sequences = [allocator.alloc(5) or () for _ in range(4)]
    for _ in range(10):
        sequences = [pages + (allocator.alloc(1, after=pages[-1]) or ()) for pages in sequences]
    assert all(pages == tuple(range(pages[0], pages[0] + 15)) for pages in sequences)


def test_a_growing_sequence_takes_another_page_when_its_neighbour_is_taken():
    allocator = PageAllocator(3)
    allocator.alloc(3)
    allocator.free([2])
    assert allocator.alloc(1, after=0) == (2,)


@pytest.mark.parametrize(
    ("pages", "message"),
    [([3, 3], "page 3 is freed twice"), ([2, 10], "page 10 is foreign"), ([-1], "foreign")],
)
def test_freeing_what_was_not_given_is_an_error_that_frees_nothing(pages, message):
    allocator = PageAllocator(10)
    allocator.alloc(10)
    with pytest.raises(ValueError, match=message):
        allocator.free(pages)
    assert allocator.num_free == 0


def test_double_free_is_an_error():
    allocator = PageAllocator(4)
    pages = allocator.alloc(2)
    assert pages is not None
    allocator.free(pages)
    with pytest.raises(ValueError, match="freed twice"):
        allocator.free(pages[:1])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.booleans()), max_size=60))
def test_no_page_is_ever_held_twice_or_lost(steps: list[tuple[bool, int, bool]]):
    allocator = PageAllocator(40)
    held: list[tuple[int, ...]] = []
    for is_alloc, number, grows in steps:
        if is_alloc:
            after = held[-1][-1] if grows and held and held[-1] else None
            pages = allocator.alloc(number, after=after)
            assert (pages is None) == (number > 40 - sum(map(len, held)))
            held += [pages] if pages is not None else []
        elif held:
            allocator.free(held.pop(number % len(held)))
        all_held = [page for pages in held for page in pages]
        assert len(set(all_held)) == len(all_held)
        assert allocator.num_free == 40 - len(all_held)
    for pages in held:
        allocator.free(pages)
    whole = allocator.alloc(40)
    assert whole == tuple(range(40)), "the free runs were not joined again"
