"""One receiver's staged sends: a thread that gathers, and one that hears what the receiver says.

    pending ──WANT──> wanted ──GRANT──> slot claimed ──> flying ──applied──> ARRIVED ──DONE──> over

Everything happens on the session's own thread, event by event, so a slow receiver delays nobody else.
"""

from __future__ import annotations

import itertools
import logging
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runtime.kv.page_runs import Write
from runtime.kv.reshard import HeadSlice
from runtime.kv.ring import Claim
from runtime.kv.staging_copy import block_bytes
from runtime.transfer.base import STAGING, Completion, SendSession
from runtime.transfer.staging.messages import (
    MAGIC,
    Arrived,
    Done,
    Dropped,
    Grant,
    Want,
    pack,
    read_from_receiver,
)
from runtime.transfer.wire.frames import FrameError, PeerClosed, Status, cut

if TYPE_CHECKING:
    from runtime.transfer.staging.sender import StagingSender

CONNECT_TIMEOUT_S = 5.0
NUM_UNDER_WAY = 3  # blocks: one gathered, one on the way, one scattered

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRoute:
    address: tuple[str, int]
    heads: HeadSlice
    pages_per_block: int
    stall_timeout_s: float


@dataclass(slots=True, kw_only=True, eq=False)
class _Job:
    ticket: int
    on_done: Completion
    num_left: int  # blocks
    reason: str | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class _Block:
    job: _Job
    src_pages: tuple[int, ...]
    dst_pages: tuple[int, ...]
    num_tokens: int
    block_id: int = 0
    grant: Grant | None = None
    claim: Claim[object] | None = None
    is_flying: bool = False
    is_over: bool = False  # the job has been told; a slot may still be in use


class StagedSession:
    """Sends one head slice of pages to one receiver."""

    def __init__(self, route: StagedRoute, sender: StagingSender, session: SendSession) -> None:
        self._route = route
        self._sender = sender
        self._session = session
        self._events: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._block_ids = itertools.count(1)
        self._pending: deque[_Block] = deque()
        self._under_way: dict[int, _Block] = {}
        self._progress_s = 0.0  # when something last moved, or began
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()  # of `_closed`, so that nothing is queued behind the last event
        self._closed = False
        self._is_running = True
        self._thread = threading.Thread(target=self._run, name="kv-stage", daemon=True)
        self._thread.start()

    def send(
        self,
        ticket: int,
        src_pages: Sequence[int],
        dst_pages: Sequence[int],
        on_done: Completion,
        *,
        num_tokens: int | None = None,
    ) -> None:
        """Queue the slice of the pages' first `num_tokens` tokens (None: of all slots). Does not block.

        The pages must stay as they are until `on_done`; then the heads lie in the receiver's pages.
        """
        size, page_size = self._route.pages_per_block, self._sender.layout.page_size
        total = len(src_pages) * page_size if num_tokens is None else num_tokens
        starts = range(0, len(src_pages), size)
        job = _Job(ticket=ticket, on_done=on_done, num_left=len(starts))
        blocks = [
            _Block(
                job=job,
                src_pages=tuple(src_pages[start : start + size]),
                dst_pages=tuple(dst_pages[start : start + size]),
                num_tokens=min(size * page_size, total - start * page_size),
            )
            for start in starts
        ]
        if not blocks:
            on_done(None)
        elif not self._post(partial(self._pending.extend, blocks)):
            on_done("the session is closed")

    def cancel(self, ticket: int) -> None:
        self._post(partial(self._cancel, ticket))

    def close(self) -> None:
        """Every send that is not over gets its `on_done` with a reason. Idempotent; does not wait."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._events.put(self._stop)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _post(self, event: Callable[[], object]) -> bool:
        with self._lock:
            if not self._closed:
                self._events.put(event)
            return not self._closed

    def _run(self) -> None:
        while self._is_running or any(block.is_flying for block in self._under_way.values()):
            self._take_event()
            self._advance()

    def _take_event(self) -> None:
        is_waiting = self._is_running and any(not one.is_over for one in self._under_way.values())
        deadline_s = self._progress_s + self._route.stall_timeout_s
        try:
            timeout_s = max(0.0, deadline_s - time.monotonic()) if is_waiting else None
            self._events.get(timeout=timeout_s)()
        except queue.Empty:
            self._lose(f"{self._name} made no progress for {self._route.stall_timeout_s:g} s")
        except (OSError, FrameError, PeerClosed) as error:
            self._lose(f"{self._name} is lost: {error!r}")

    def _advance(self) -> None:
        """Begin what can begin. A receiver that can't be reached costs each block that tries."""
        while self._pending and len(self._under_way) < NUM_UNDER_WAY:
            block = self._pending.popleft()
            if block.job.reason is not None:
                self._end(block, block.job.reason)
                continue
            if not self._under_way:
                self._progress_s = time.monotonic()
            block.block_id = next(self._block_ids)
            self._under_way[block.block_id] = block
            try:
                self._tell(Want(block_id=block.block_id))
            except OSError as error:
                self._lose(f"{self._name} is lost: {error!r}")

    @property
    def _name(self) -> str:
        return f"the staging pool {self._route.address[0]}:{self._route.address[1]}"

    def _on_message(self, sock: socket.socket, message: Grant | Done) -> None:
        block = self._under_way.get(message.block_id)
        if sock is not self._socket or block is None or block.is_over:
            return  # said on a connection that was given up
        self._progress_s = time.monotonic()
        if isinstance(message, Done):
            del self._under_way[block.block_id]
            refused = f"the receiver refused a staged block: {message.status.name.lower()}"
            self._end(block, None if message.status is Status.DONE else refused)
        elif block.job.reason is not None:
            self._drop(block, block.job.reason)
        else:
            block.grant = message
            on_grant = partial(self._events.put, partial(self._fly, block))
            block.claim = self._sender.claim(self, on_grant)

    def _fly(self, block: _Block) -> None:
        """A slot on either side is ours: fill the one, and write it into the other."""
        grant, claim, heads = block.grant, block.claim, self._route.heads
        if grant is None or claim is None:
            return  # lost between the event and now, and the slot with it
        layout = self._sender.layout
        size = block_bytes(layout, num_heads=heads.num_heads, num_tokens=block.num_tokens)
        start, memory = self._sender.slot(claim, size)
        ours = range(heads.src_head, heads.src_head + heads.num_heads)
        self._sender.copies.gather(block.src_pages, ours, memory, num_tokens=block.num_tokens)
        block.is_flying = True
        self._session.send(
            grant.ticket,
            [Write(src_offset=start, dst_offset=grant.offset, num_bytes=size)],
            lambda reason: self._events.put(partial(self._on_sent, block, reason)),
            region_id=STAGING,
        )

    def _on_sent(self, block: _Block, reason: str | None) -> None:
        block.is_flying = False
        self._progress_s = time.monotonic()
        self._release(block)
        if block.is_over:
            self._under_way.pop(block.block_id, None)
        elif reason is not None:
            self._drop(block, reason)
        else:
            heads = self._route.heads
            self._tell(
                Arrived(
                    block_id=block.block_id,
                    ticket=block.job.ticket,
                    dst_head=heads.dst_head,
                    num_heads=heads.num_heads,
                    num_tokens=block.num_tokens,
                    pages=block.dst_pages,
                )
            )

    def _drop(self, block: _Block, reason: str) -> None:
        self._under_way.pop(block.block_id, None)
        self._end(block, reason)
        self._tell(Dropped(block_id=block.block_id))

    def _end(self, block: _Block, reason: str | None) -> None:
        block.is_over = True
        job = block.job
        job.reason = job.reason or reason
        job.num_left -= 1
        if not job.num_left:
            job.on_done(job.reason)

    def _release(self, block: _Block) -> None:
        if block.claim is not None:
            self._sender.release(block.claim)
            block.claim = None

    def _cancel(self, ticket: int) -> None:
        dropped = [block for block in self._pending if block.job.ticket == ticket]
        self._pending = deque(block for block in self._pending if block.job.ticket != ticket)
        for block in dropped:
            self._end(block, "cancelled")
        for block in self._under_way.values():
            if block.job.ticket == ticket:
                block.job.reason = block.job.reason or "cancelled"

    def _lose(self, reason: str) -> None:
        """Give up the connection, and what was under way on it; later sends try again."""
        _log.warning("%s", reason)
        if self._socket is not None:
            cut(self._socket)
            self._socket = None
        for block in list(self._under_way.values()):
            if not block.is_over:
                self._end(block, reason)
            if not block.is_flying:  # else its slot is being read, and `_on_sent` comes
                self._under_way.pop(block.block_id)
                self._release(block)

    def _stop(self) -> None:
        self._is_running = False
        pending, self._pending = self._pending, deque()
        for block in pending:
            self._end(block, "the session was closed")
        self._lose("the session was closed")

    def _tell(self, message: Want | Arrived | Dropped) -> None:
        """Connects first, if need be. Raises OSError."""
        if self._socket is None:
            sock = socket.create_connection(self._route.address, timeout=CONNECT_TIMEOUT_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(None)
            sock.sendall(MAGIC)
            self._socket = sock
            threading.Thread(target=self._listen, args=(sock,), name="kv-staged", daemon=True).start()
        self._socket.sendall(pack(message))

    def _listen(self, sock: socket.socket) -> None:
        with sock:
            try:
                while True:
                    self._events.put(partial(self._on_message, sock, read_from_receiver(sock)))
            except (OSError, FrameError, PeerClosed) as error:
                self._events.put(partial(self._on_lost, sock, f"{self._name} is lost: {error!r}"))

    def _on_lost(self, sock: socket.socket, reason: str) -> None:
        if sock is self._socket:
            self._lose(reason)
