"""What transfer libraries are told of memory, and what reads it again."""

from __future__ import annotations

import torch

from runtime.kv.checksums import head_checksums
from runtime.kv.layout import KVLayout
from runtime.kv.memory import DeviceMemory, memory_of, tensor_of

LAYOUT = KVLayout(num_layers=3, num_pages=8, page_size=4, num_kv_heads=2, head_dim=4, dtype_bytes=2)


def test_bytes_of_a_tensor_are_its_own():
    tensor = torch.zeros(3, 2, dtype=torch.int16)
    memory = memory_of(tensor)
    assert isinstance(memory, memoryview)
    assert (len(memory), memory.readonly, memory.format) == (12, False, "B")
    memory[2] = 7
    assert tensor[0, 1] == 7
    assert tensor_of(memory).data_ptr() == tensor.data_ptr()


def test_memory_of_a_device_tells_its_address_and_keeps_its_tensor():
    tensor = torch.arange(12, dtype=torch.uint8)
    memory = DeviceMemory(tensor)
    assert (len(memory), memory.address, memory.device) == (12, tensor.data_ptr(), 0)
    assert tensor_of(memory) is tensor


def test_checksums_are_the_same_wherever_the_pool_lies():
    """A tensor in host memory stands in for a device's: the way through it is the device's."""
    pool = torch.randint(0, 256, (LAYOUT.total_bytes,), dtype=torch.uint8)
    on_device = head_checksums(DeviceMemory(pool), LAYOUT, [5, 0, 1], 10)
    assert on_device == head_checksums(memory_of(pool), LAYOUT, [5, 0, 1], 10)
    assert len(set(on_device)) == 6
