"""A one-sided library, its gate and its lanes together: a `TransferBackend`."""

from __future__ import annotations

import ctypes
import itertools
import threading

import msgpack

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
from runtime.transfer.one_sided.fabric import Fabric
from runtime.transfer.one_sided.lanes import Lane, LaneSizes
from runtime.transfer.one_sided.receiver import GateReceiver
from runtime.transfer.one_sided.session import OneSidedSession, Region, Route
from runtime.transfer.wire.frames import MAX_WRITES

_MAX_REGIONS = 64


class OneSidedBackend:
    """Owns the fabric: closes it, also when opening fails."""

    def __init__(
        self,
        fabric: Fabric,
        *,
        host: str,
        advertised_host: str,
        stall_timeout_s: float,
        options: BackendOptions | None,
    ) -> None:
        self.fabric = fabric
        self._advertised_host = advertised_host
        self._stall_timeout_s = stall_timeout_s
        try:
            self._sizes = LaneSizes.of(options or BackendOptions())
            self._receiver = GateReceiver(host, fabric)
        except (TransferError, OSError):
            fabric.close()
            raise
        self._lanes = [Lane(f"kv-lane-{index}") for index in range(self._sizes.num_queues)]
        self._next_lane = itertools.cycle(self._lanes)
        self._regions: dict[int, Region] = {}
        self._memory: dict[int, Memory] = {}  # kept alive
        self._lock = threading.Lock()
        self._num_bytes_sent = 0
        self._closed = False

    def register(self, region_id: int, memory: Memory) -> None:
        region = self._region(memory)
        self.fabric.register(region.address, region.num_bytes, region.device)
        self._memory[region_id] = memory
        self._regions[region_id] = region

    def _region(self, memory: Memory) -> Region:
        if isinstance(memory, DeviceMemory):
            return Region(address=memory.address, num_bytes=len(memory), device=memory.device)
        if memory.readonly or memory.format != "B" or not memory.contiguous:
            raise TransferError(f"the {self.fabric.name} backend registers contiguous, writable bytes")
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        return Region(address=address, num_bytes=len(memory))

    def endpoint(self) -> bytes:
        regions = {
            region_id: (one.address, one.num_bytes, one.device) for region_id, one in self._regions.items()
        }
        gate = (self._advertised_host, self._receiver.port)
        packed = msgpack.packb((self.fabric.name, *gate, self.fabric.describe(), list(regions.items())))
        assert packed is not None, "packb returns what it packed"
        return packed

    def allow(self, ticket: int, window: Window, *, region_id: int = POOL) -> None:
        self._receiver.allow(ticket, region_id, window)

    def revoke(self, ticket: int, on_quiet: OnQuiet = ignore_quiet) -> None:
        self._receiver.revoke(ticket, on_quiet)

    def connect(self, endpoint: bytes) -> SendSession:
        route = self._read_endpoint(endpoint)
        lane = next(self._next_lane)
        session = OneSidedSession(route, wake=lane.wake, count_bytes=self._count_bytes)
        lane.add(session)
        return session

    def num_bytes_sent(self) -> int:
        return self._num_bytes_sent

    def close(self) -> None:
        """First the library, then the gates: the end of a gate says that nothing is written any more."""
        if self._closed:
            return
        self._closed = True
        left = [session for lane in self._lanes for session in lane.stop()]
        for session in left:
            session.close()
        self.fabric.close()
        for session in left:
            session.shut()
        self._receiver.close()

    def _count_bytes(self, num_bytes: int) -> None:
        with self._lock:
            self._num_bytes_sent += num_bytes

    def _read_endpoint(self, endpoint: bytes) -> Route:
        try:
            name, host, port, description, pairs = msgpack.unpackb(endpoint, max_array_len=_MAX_REGIONS)
            remote = {int(key): _read_region(*one) for key, one in pairs}
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise TransferError(f"not an endpoint of a one-sided backend: {endpoint!r:.80}") from error
        if name != self.fabric.name or not isinstance(host, str) or not isinstance(description, bytes):
            raise TransferError(f"not an endpoint of the {self.fabric.name} backend: {endpoint!r:.80}")
        if not isinstance(port, int) or not 0 < port < 65_536:
            raise TransferError(f"an endpoint with the port {port!r}")
        num_in_flight = self._sizes.num_in_flight
        return Route(
            name=f"{name} to {host}:{port}",
            gate=(host, port),
            open_peer=lambda: self.fabric.open(description),
            local=self._regions,
            remote=remote,
            num_in_flight=num_in_flight,
            max_writes=max(1, min(self.fabric.max_writes_in_flight // num_in_flight, MAX_WRITES)),
            stall_timeout_s=self._stall_timeout_s,
        )


def _read_region(address: int, num_bytes: int, device: int | None) -> Region:
    """Raises ValueError, TypeError."""
    return Region(
        address=int(address), num_bytes=int(num_bytes), device=None if device is None else int(device)
    )
