"""The gate on the receiving side: grants batches, and knows until when their memory is in quarantine."""

from __future__ import annotations

import logging
import socket
import threading
from collections import defaultdict, deque
from contextlib import suppress

from runtime.transfer.base import OnQuiet, Window
from runtime.transfer.one_sided.fabric import Fabric
from runtime.transfer.one_sided.gate import MAGIC, Over, read_message
from runtime.transfer.one_sided.turns import Turns
from runtime.transfer.wire.connections import Connections
from runtime.transfer.wire.frames import Frame, FrameError, Status, read_magic, send_answer
from runtime.transfer.wire.grants import Grant, Grants, OutsideError

PARTITION_DRAIN_S = 120.0
"""How long bytes of a machine that is cut off can still land, should it come back.

Mooncake gives up a write after 30 s without progress, RDMA cards after a few; then the kernel over there
sends what it holds of a closed connection for up to 100 s (Linux, `tcp_orphan_retries`). Both count from the
cut, this from VANISHED_AFTER_S later.
"""

_log = logging.getLogger(__name__)

Begun = dict[int, deque[Grant]]  # by ticket: the batches of one connection that are under way


class GateReceiver:
    """Listens on its own port."""

    def __init__(self, host: str, fabric: Fabric, *, partition_drain_s: float = PARTITION_DRAIN_S) -> None:
        self._drain_s = fabric.drain_s
        self._partition_drain_s = max(partition_drain_s, fabric.drain_s)
        self._grants = Grants()
        self._turns = Turns(fabric) if fabric.needs_turns else None
        self._draining: set[threading.Timer] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._connections = Connections(host, self.serve)

    @property
    def port(self) -> int:
        return self._connections.port

    def allow(self, ticket: int, region_id: int, window: Window) -> None:
        self._grants.allow(ticket, region_id, window)

    def revoke(self, ticket: int, on_quiet: OnQuiet) -> None:
        self._grants.revoke(ticket, on_quiet)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for timer in self._draining:
                timer.cancel()
        self._connections.close()
        if self._turns is not None:
            self._turns.close()
        for timer in list(self._draining):
            timer.join()

    def serve(self, sock: socket.socket) -> None:
        """One sender's connection, to its end. Raises PeerClosed, OSError, FrameError."""
        begun: Begun = defaultdict(deque)
        read_magic(sock, MAGIC)
        drain_s = self._drain_s
        try:
            while True:
                match read_message(sock):
                    case Over() as over:
                        self._end(sock, begun, over)
                    case Frame() as frame:
                        send_answer(sock, frame.ticket, self._begin(sock, begun, frame))
        except TimeoutError:  # its machine doesn't answer; it may be alive, and write on
            drain_s = self._partition_drain_s
            raise
        finally:
            lost = [grant for grants in begun.values() for grant in grants]
            if lost:
                _log.warning("a sender is gone in the middle of a write: %d batches drain", len(lost))
            for grant in lost:
                self._drain(sock, grant, drain_s)

    def _begin(self, sock: socket.socket, begun: Begun, frame: Frame) -> Status:
        try:
            grant = self._grants.begin(sock, frame)
        except OutsideError as error:
            _log.warning("refusing a KV batch: %s", error)
            return Status.OUTSIDE
        if grant is None:
            return Status.NO_ROOM
        begun[frame.ticket].append(grant)
        if self._turns is not None:
            self._turns.begin()
        return Status.DONE

    def _end(self, sock: socket.socket, begun: Begun, over: Over) -> None:
        if not begun[over.ticket]:
            raise FrameError(f"a batch of ticket {over.ticket} is over that had not begun")
        grant = begun[over.ticket].popleft()
        if not begun[over.ticket]:
            del begun[over.ticket]
        if over.is_broken:
            self._drain(sock, grant, self._drain_s)
        else:
            self._settle(sock, grant)

    def _drain(self, sock: socket.socket, grant: Grant, drain_s: float) -> None:
        """Wait until the fabric can hold nothing of the batch any more."""
        with self._lock:
            if self._closed:
                return
            timer = threading.Timer(drain_s, lambda: self._drained(timer, sock, grant))
            timer.daemon = True
            self._draining.add(timer)
            timer.start()

    def _drained(self, timer: threading.Timer, sock: socket.socket, grant: Grant) -> None:
        with self._lock, suppress(KeyError):
            self._draining.remove(timer)
        self._settle(sock, grant)

    def _settle(self, sock: socket.socket, grant: Grant) -> None:
        if self._turns is not None:
            self._turns.end()
        self._grants.end(sock, grant)
