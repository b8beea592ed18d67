"""The `mooncake` transfer backend: Mooncake's transfer engine, over its sockets or RDMA.

Runs in CI over sockets (mooncake-transfer-engine-non-cuda 0.3.13.post1). With `devices` it asks for RDMA,
which has not run where this was written.

What the library taught:
- Its blocking calls turn in a loop without the GIL, one core each (14 s of CPU in 30 s of waiting for a
  stopped receiver). So writes are submitted one by one and asked about now and then, which on sockets is
  also faster than one batch: 1,000 writes of 2 KiB took 43 ms instead of 159 ms.
- Over sockets at most 1,024 writes to one receiver are queued; more are refused after a second.
- It reads source memory that nobody registered. The session checks ranges itself.
- A write that makes no progress for 30 s fails, and its connection is dropped.
- Taking an engine apart holds the GIL for a second, so one that is closed waits for its next use instead.
- The first contact with a receiver that stands still blocks for a minute. The gate comes before it.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections import deque
from collections.abc import Sequence

from runtime.transfer.base import BackendOptions, TransferError
from runtime.transfer.one_sided.backend import OneSidedBackend
from runtime.transfer.one_sided.fabric import Copy, read_session

INSTALL_HINT = "pip install 'pdctl[mooncake]', on Debian also apt-get install libibverbs1"

CUDA_HINT = "pip install mooncake-transfer-engine-cuda13, or mooncake-transfer-engine for CUDA 12"
_CUDA_BUILDS = ("mooncake-transfer-engine", "mooncake-transfer-engine-cuda13")

_APPLIED, _PENDING = 1, 0

_idle_engines: dict[tuple[str, tuple[str, ...]], list] = {}  # by address and devices


class MooncakeFabric:
    name = "mooncake"
    max_writes_in_flight = 1024
    drain_s = 2.0
    needs_turns = False

    def __init__(self, advertised_host: str, devices: Sequence[str]) -> None:
        os.environ.setdefault("MC_LOG_LEVEL", "WARNING")  # it tells of each step otherwise
        try:
            from mooncake.engine import TransferEngine
        except ImportError as error:
            raise TransferError(
                f"the library of the mooncake backend is missing ({error}): {INSTALL_HINT}"
            ) from error
        self._key = (advertised_host, tuple(devices))
        idle = _idle_engines.setdefault(self._key, [])
        self.engine = idle.pop() if idle else _start(TransferEngine(), advertised_host, devices)
        self._session = f"{advertised_host}:{self.engine.get_rpc_port()}"
        self._registered: list[int] = []

    def register(self, address: int, num_bytes: int, device: int | None) -> None:
        if device is not None and not _knows_devices():
            raise TransferError(f"this build of mooncake moves host memory only: {CUDA_HINT}")
        code = self.engine.register_memory(address, num_bytes)
        if code != 0:
            raise TransferError(f"mooncake cannot register {num_bytes} bytes: code {code}")
        self._registered.append(address)

    def describe(self) -> bytes:
        return self._session.encode()

    def open(self, description: bytes) -> MooncakePeer:
        return MooncakePeer(self.engine, read_session(description, library=self.name))

    def take_turn(self) -> None:
        pass  # its own threads receive

    def close(self) -> None:
        for address in self._registered:
            self.engine.unregister_memory(address)
        self._registered.clear()
        _idle_engines[self._key].append(self.engine)


def _knows_devices() -> bool:
    """The library itself can't tell: a build without CUDA takes a device's address for one of its own."""
    return any(
        next(iter(importlib.metadata.distributions(name=name)), None) is not None for name in _CUDA_BUILDS
    )


def _start(engine, advertised_host: str, devices: Sequence[str]):
    protocol = "rdma" if devices else "tcp"
    code = engine.initialize(advertised_host, "P2PHANDSHAKE", protocol, ",".join(devices))
    if code != 0:
        raise TransferError(f"mooncake cannot start over {protocol} on {advertised_host}: code {code}")
    return engine


class MooncakePeer:
    def __init__(self, engine, session: str) -> None:
        self._engine = engine
        self._session = session

    def post(self, copies: Sequence[Copy]) -> MooncakeFlight:
        flight = MooncakeFlight(self._engine)
        for copy in copies:
            write_id = self._engine.transfer_submit_write(
                self._session, copy.src_address, copy.dst_address, copy.num_bytes
            )
            if write_id in (0, -1):
                flight.refuse(f"mooncake refused a write of {copy.num_bytes} bytes to {self._session}")
                break
            flight.add(write_id)
        return flight

    def close(self) -> None:
        pass  # connections belong to the engine


class MooncakeFlight:
    """Writes with an id each. A failed one ends the flight when all others have ended too."""

    def __init__(self, engine) -> None:
        self._engine = engine
        self._write_ids: deque[int] = deque()
        self._fault: str | None = None

    def add(self, write_id: int) -> None:
        self._write_ids.append(write_id)

    def refuse(self, fault: str) -> None:
        self._fault = fault

    def is_applied(self) -> bool:
        while self._write_ids:
            code = self._engine.transfer_check_status(self._write_ids[0])
            if code == _PENDING:
                return False
            self._write_ids.popleft()
            if code != _APPLIED:
                self._fault = self._fault or f"mooncake failed a write: code {code}"
        if self._fault is not None:
            raise TransferError(self._fault)
        return True


def open_backend(
    *, host: str, advertised_host: str, stall_timeout_s: float, options: BackendOptions | None = None
) -> OneSidedBackend:
    return OneSidedBackend(
        MooncakeFabric(advertised_host, options.devices if options else ()),
        host=host,
        advertised_host=advertised_host,
        stall_timeout_s=stall_timeout_s,
        options=options,
    )
