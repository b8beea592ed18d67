"""Memory that KV lies in, and that transfer libraries are told of: host memory, or an accelerator's."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class DeviceMemory:
    """Bytes of an accelerator. Holds the tensor that they belong to, so they last as long as this."""

    tensor: Tensor  # uint8, [num_bytes], contiguous

    def __len__(self) -> int:
        return self.tensor.numel()

    @property
    def address(self) -> int:
        return self.tensor.data_ptr()

    @property
    def device(self) -> int:
        """The accelerator's number, as this process counts them."""
        return self.tensor.device.index or 0


Memory = memoryview | DeviceMemory


def memory_of(tensor: Tensor) -> Memory:
    """All bytes of a contiguous tensor, writable; no copy."""
    as_bytes = tensor.view(-1).view(torch.uint8)
    return as_bytes.numpy().data if tensor.device.type == "cpu" else DeviceMemory(as_bytes)


def tensor_of(memory: Memory) -> Tensor:
    """The bytes as uint8, [num_bytes], where they lie; no copy."""
    if isinstance(memory, DeviceMemory):
        return memory.tensor
    return torch.frombuffer(memory, dtype=torch.uint8)
