"""The protocol of a transfer backend: the mover of bytes between registered memories of two processes.

It is written for one-sided writes, the way RDMA libraries work: the receiver registers memory and describes
it in an opaque *endpoint*, which travels over the control channel; the sender then writes at offsets that it
was told, and learns when a write is *applied*, that is visible in the receiver's memory. Nothing here knows
about pages, layers or requests: those are offsets by the time they get here, and the message "all of it is
there" is the control channel's.

A `ticket` names the room that a write belongs to: a random number which the receiver drew, so a sender that
was not told it, or was told another one, writes nothing.

Memory that a ticket covered may serve something else once it is *quiet*: no byte of the ticket's writes can
land any more. A receiver whose fabric writes behind its back can't make that so, it can only learn it, from
the sender or from the sender's end; so `revoke` tells it later. Until then the memory is in quarantine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime.kv.memory import Memory
from runtime.kv.page_runs import Write

POOL, STAGING = 0, 1  # region ids: the KV pool, the staging buffer or pool

Completion = Callable[[str | None], object]
"""Called once per send, from any thread, and must not block: None when applied, else the reason why not."""

OnQuiet = Callable[[], object]
"""Called once per `revoke`, from any thread, maybe before that returns; must not block."""


class TransferError(Exception):
    """A backend that cannot work here, or an endpoint that it cannot read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """What a backend may be told beyond its addresses; each takes what it knows."""

    num_threads: int | None = None  # of a rank's sends; None: by the number of CPUs, as SGLang counts
    num_queues: int = 4
    devices: tuple[str, ...] = ()  # RDMA devices; none: sockets
    plugin: str = "UCX"  # of NIXL
    protocol: str = "sdma"  # of Ascend
    device_id: int = 0  # the NPU of this rank, as its process counts them
    is_receiver: bool = False  # a decode rank


def ignore_quiet() -> None:
    """For a caller that does not use the memory again."""


class Window(Protocol):
    """What part of a region a sender may write."""

    def covers(self, offset: int, num_bytes: int) -> bool: ...


class SendSession(Protocol):
    """The way from this process into one receiver's regions. No method blocks; sends begin in order.

    Several may be under way at once, so a later one may be applied first.
    """

    def send(
        self, ticket: int, writes: Sequence[Write], on_done: Completion, *, region_id: int = POOL
    ) -> None:
        """Queue copies from the local region to the receiver's region of the same id; one `Write` sends one
        block.

        The source bytes must stay as they are until `on_done`.
        """
        ...

    def cancel(self, ticket: int) -> None:
        """Drop the ticket's sends that have not begun; each still gets its `on_done`."""
        ...

    def close(self) -> None:
        """End the session; every send that is not applied gets its `on_done` with a reason. Idempotent.

        A write that can't be called back gets it when it is over.
        """
        ...


class TransferBackend(Protocol):
    """One per process. Methods may be called from any thread."""

    def register(self, region_id: int, memory: Memory) -> None:
        """Make a local memory readable for sends, and writable by peers inside allowed windows.

        The memory must outlive the backend. Raises TransferError, also where it lies on an accelerator that
        the backend does not reach. Work on a device that writes it must be over before it is sent.
        """
        ...

    def endpoint(self) -> bytes:
        """How a sender reaches the registered regions: address, keys, pointers, in a form of its own."""
        ...

    def allow(self, ticket: int, window: Window, *, region_id: int = POOL) -> None:
        """Let the sender that knows `ticket` write into the window, until `revoke`."""
        ...

    def revoke(self, ticket: int, on_quiet: OnQuiet = ignore_quiet) -> None:
        """Begin no write of this ticket any more, and tell when what had begun is over. Does not block.

        Unknown tickets are quiet. A sender that stands still in the middle of a write keeps its memory in
        quarantine until it goes on, dies, or its machine can't be reached: as long as it could write there is
        no deadline after which memory could be called safe.
        """
        ...

    def connect(self, endpoint: bytes) -> SendSession:
        """A session to the receiver that described itself so. Raises TransferError when it cannot be read."""
        ...

    def num_bytes_sent(self) -> int: ...

    def close(self) -> None:
        """Close all sessions, stop all threads. Idempotent."""
        ...


class OpenBackend(Protocol):
    """The signature of the `open_backend` function that each backend module has."""

    def __call__(
        self,
        *,
        host: str,
        advertised_host: str,
        stall_timeout_s: float,
        options: BackendOptions | None = None,
    ) -> TransferBackend:
        """Listen on `host` where the fabric has addresses, and describe oneself as `advertised_host`.

        A write that makes no progress for `stall_timeout_s` fails. Raises TransferError when the library of
        the backend is missing or does not work here.
        """
        ...
