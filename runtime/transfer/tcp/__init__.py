"""The `tcp` transfer backend: plain sockets over host memory, for machines without a fabric."""

from __future__ import annotations

import json
import threading

from runtime.kv.memory import DeviceMemory, Memory
from runtime.transfer.base import (
    POOL,
    BackendOptions,
    OnQuiet,
    SendSession,
    TransferError,
    Window,
    ignore_quiet,
)
from runtime.transfer.tcp.receiver import TcpReceiver
from runtime.transfer.tcp.sender import TcpSendSession

JOIN_TIMEOUT_S = 5.0


class TcpBackend:
    """Receives on one port, sends through one session per receiver."""

    def __init__(self, *, host: str, advertised_host: str, stall_timeout_s: float) -> None:
        self._regions: dict[int, memoryview] = {}
        self._receiver = TcpReceiver(host, self._regions)
        self._advertised_host = advertised_host
        self._stall_timeout_s = stall_timeout_s
        self._sessions: list[TcpSendSession] = []
        self._lock = threading.Lock()
        self._num_bytes_sent = 0

    def register(self, region_id: int, memory: Memory) -> None:
        if isinstance(memory, DeviceMemory):
            raise TransferError("the tcp backend moves host memory only, and this lies on an accelerator")
        if memory.readonly or memory.format != "B" or not memory.contiguous:
            raise TransferError("the tcp backend registers contiguous, writable bytes in host memory")
        self._regions[region_id] = memory

    def endpoint(self) -> bytes:
        return json.dumps([self._advertised_host, self._receiver.port]).encode()

    def allow(self, ticket: int, window: Window, *, region_id: int = POOL) -> None:
        self._receiver.allow(ticket, region_id, window)

    def revoke(self, ticket: int, on_quiet: OnQuiet = ignore_quiet) -> None:
        self._receiver.revoke(ticket, on_quiet)

    def connect(self, endpoint: bytes) -> SendSession:
        session = TcpSendSession(
            _read_endpoint(endpoint),
            self._regions,
            stall_timeout_s=self._stall_timeout_s,
            count_bytes=self._count_bytes,
        )
        self._sessions = [known for known in self._sessions if known.is_alive()]
        self._sessions.append(session)
        return session

    def num_bytes_sent(self) -> int:
        return self._num_bytes_sent

    def close(self) -> None:
        for session in self._sessions:
            session.close()
        for session in self._sessions:
            session.join(JOIN_TIMEOUT_S)
        self._receiver.close()

    def _count_bytes(self, num_bytes: int) -> None:
        with self._lock:
            self._num_bytes_sent += num_bytes


def open_backend(
    *, host: str, advertised_host: str, stall_timeout_s: float, options: BackendOptions | None = None
) -> TcpBackend:
    """Each receiver has a thread and a connection of its own here, so no option applies."""
    return TcpBackend(host=host, advertised_host=advertised_host, stall_timeout_s=stall_timeout_s)


def _read_endpoint(endpoint: bytes) -> tuple[str, int]:
    try:
        host, port = json.loads(endpoint)
    except (ValueError, TypeError) as error:
        raise TransferError(f"not an endpoint of the tcp backend: {endpoint!r:.80}") from error
    if not isinstance(host, str) or not isinstance(port, int) or not 0 < port < 65_536:
        raise TransferError(f"not an endpoint of the tcp backend: {endpoint!r:.80}")
    return host, port


__all__ = ["TcpBackend", "open_backend"]
