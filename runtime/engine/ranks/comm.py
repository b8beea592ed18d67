"""What ranks say to each other in lock-step: the leader's commands, replies to it, and sums of tensors.

Commands and replies are bytes with a schema (`commands.py`); torch's own object collectives would pickle.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, cast

import torch
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

LEADER = 0
INLINE_BYTES = 4096  # a command up to this long takes one broadcast
# A rank waits for commands as long as its engine is idle. That the leader lives is told by the report link.
COMMAND_TIMEOUT = timedelta(days=365)
COMPUTE_TIMEOUT = timedelta(minutes=10)

_LENGTH = struct.Struct("!Q")


class _Work(Protocol):
    def wait(self) -> object: ...


class _Collectives(Protocol):
    """What is used of a backend of torch's, whose own declarations leave these out."""

    def broadcast(self, tensor: Tensor, root: int) -> _Work: ...

    def allreduce(self, tensor: Tensor) -> _Work: ...

    def gather(self, out: list[list[Tensor]], tensors: list[Tensor], options: object) -> _Work: ...


class Comm(Protocol):
    """All ranks of one engine. Every rank makes the same calls in the same order, each on one thread."""

    @property
    def size(self) -> int: ...

    def broadcast(self, command: bytes | None) -> bytes:
        """The leader's bytes, on every rank; the others pass None."""
        ...

    def gather(self, reply: bytes) -> list[bytes]:
        """Everybody's bytes by rank, on the leader; nothing elsewhere."""
        ...

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all ranks, the same bits everywhere."""
        ...

    def join_columns(self, tensor: Tensor, widths: Sequence[int]) -> Tensor:
        """Put the ranks' columns side by side, on the leader: [N, sum(widths)]; elsewhere the own ones.

        tensor: [N, widths[rank]]
        """
        ...


class Alone:
    """The only rank of its engine."""

    size = 1

    def broadcast(self, command: bytes | None) -> bytes:
        assert command is not None
        return command

    def gather(self, reply: bytes) -> list[bytes]:
        return [reply]

    def sum_(self, tensor: Tensor) -> Tensor:
        return tensor

    def join_columns(self, tensor: Tensor, widths: Sequence[int]) -> Tensor:
        return tensor


class TorchComm:
    """Ranks joined by torch.distributed: gloo for bytes, and for tensors on CPUs; NCCL for those on GPUs.

    NCCL joins no two ranks on one GPU, so tensors of such go by way of host memory.
    """

    def __init__(
        self,
        store: c10d.Store,
        rank: int,
        size: int,
        *,
        host: str,
        device: torch.device,
        is_device_shared: bool = False,
    ) -> None:
        """Blocks until all ranks have come, as long as `store` waits. `host`: this node's own address."""
        self._rank = rank
        self.size = size
        self._commands = _gloo(c10d.PrefixStore("commands", store), rank, size, host, COMMAND_TIMEOUT)
        compute = c10d.PrefixStore("compute", store)
        self._compute = (
            _gloo(compute, rank, size, host, COMPUTE_TIMEOUT)
            if device.type == "cpu" or is_device_shared
            else _nccl(compute, rank, size)
        )
        self._by_host = is_device_shared

    def broadcast(self, command: bytes | None) -> bytes:
        frame = torch.zeros(_LENGTH.size + INLINE_BYTES, dtype=torch.uint8)
        if command is not None:
            head = _LENGTH.pack(len(command)) + command[:INLINE_BYTES]
            frame[: len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
        self._commands.broadcast(frame, LEADER).wait()
        raw = frame.numpy().tobytes()
        (num_bytes,) = _LENGTH.unpack(raw[: _LENGTH.size])
        if num_bytes <= INLINE_BYTES:
            return raw[_LENGTH.size : _LENGTH.size + num_bytes]
        whole = torch.frombuffer(bytearray(command or num_bytes), dtype=torch.uint8)
        self._commands.broadcast(whole, LEADER).wait()
        return whole.numpy().tobytes()

    def gather(self, reply: bytes) -> list[bytes]:
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self._rank] = len(reply)
        self._commands.allreduce(lengths).wait()
        longest = int(lengths.max())
        if not longest:
            return [b""] * self.size if self._rank == LEADER else []
        padded = torch.frombuffer(bytearray(reply.ljust(longest, b"\0")), dtype=torch.uint8)
        rows = self._gather(self._commands, padded)
        return [row[:length].numpy().tobytes() for row, length in zip(rows, lengths.tolist(), strict=False)]

    def sum_(self, tensor: Tensor) -> Tensor:
        reduced = tensor.cpu() if self._by_host else tensor
        self._compute.allreduce(reduced).wait()
        return tensor.copy_(reduced) if self._by_host else tensor

    def join_columns(self, tensor: Tensor, widths: Sequence[int]) -> Tensor:
        widest = max(widths)
        padded = tensor.new_zeros(len(tensor), widest)
        padded[:, : tensor.shape[1]] = tensor
        parts = self._gather(self._compute, padded.cpu() if self._by_host else padded)
        if not parts:
            return tensor
        whole = torch.cat([part[:, :width] for part, width in zip(parts, widths, strict=True)], dim=1)
        return whole.to(tensor.device)

    def _gather(self, group: _Collectives, tensor: Tensor) -> list[Tensor]:
        """Equal tensors by rank on the leader, none elsewhere."""
        parts = [torch.empty_like(tensor) for _ in range(self.size)] if self._rank == LEADER else []
        options = c10d.GatherOptions()
        options.rootRank = LEADER
        group.gather([parts] if parts else [], [tensor], options).wait()
        return parts


def _gloo(store: c10d.Store, rank: int, size: int, host: str, timeout: timedelta) -> _Collectives:
    """Gloo on the address of this node, rather than on the one that its host name happens to resolve to."""
    gloo = c10d.ProcessGroupGloo
    options = gloo._Options()  # type: ignore[attr-defined]  # its constructor's own argument
    options._timeout = timeout
    options._devices = [
        gloo.create_default_device() if _is_wildcard(host) else gloo.create_device(hostname=host)
    ]
    return cast("_Collectives", gloo(store, rank, size, options))


def _nccl(store: c10d.Store, rank: int, size: int) -> _Collectives:
    nccl = c10d.ProcessGroupNCCL
    return cast("_Collectives", nccl(store, rank, size, nccl.Options()))


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host
