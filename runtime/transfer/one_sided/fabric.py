"""What a one-sided library has to be able to do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from runtime.transfer.base import TransferError


class Copy(NamedTuple):
    """One write: addresses in the sender's and in the receiver's process, both in registered memory.

    A device is the number of an accelerator in its own process, None: host memory. All copies of a batch
    have the same two.
    """

    src_address: int
    dst_address: int
    num_bytes: int
    src_device: int | None = None
    dst_device: int | None = None


class Flight(Protocol):
    """A batch of writes that was handed to the library."""

    def is_applied(self) -> bool:
        """Ask the library, without blocking. Raises TransferError, once, when the batch failed."""
        ...


class Peer(Protocol):
    """The library's way to one receiver."""

    def post(self, copies: Sequence[Copy]) -> Flight:
        """Begin a batch. Does not wait for the receiver. Raises TransferError."""
        ...

    def close(self) -> None: ...


class Fabric(Protocol):
    """One library, opened. `post` and `is_applied` are called from several threads."""

    name: str
    max_writes_in_flight: int  # to one receiver
    drain_s: float
    """How long after the end of a broken batch its bytes can still land."""
    needs_turns: bool
    """Whether writes only land while the receiver calls `take_turn`."""

    def register(self, address: int, num_bytes: int, device: int | None) -> None:
        """Host memory, or that of an accelerator of this process. Raises TransferError."""
        ...

    def describe(self) -> bytes:
        """What a sender's `open` needs, about all memory registered so far."""
        ...

    def open(self, description: bytes) -> Peer:
        """Raises TransferError when the description is not of this library."""
        ...

    def take_turn(self) -> None: ...

    def close(self) -> None: ...


def read_session(description: bytes, *, library: str) -> str:
    """The `HOST:PORT` by which some libraries know a receiver. Raises TransferError for anything else."""
    with suppress(UnicodeDecodeError):
        session = description.decode()
        if session.rpartition(":")[2].isdecimal():
            return session
    raise TransferError(f"not a session of {library}: {description!r:.80}")
