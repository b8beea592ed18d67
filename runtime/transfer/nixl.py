"""The `nixl` transfer backend: NVIDIA's NIXL, over UCX or another of its plugins.

Runs in CI over UCX (nixl 1.5.1) in host memory: shared memory within a machine, sockets with `UCX_TLS=tcp`.
Other plugins (LIBFABRIC, …) are chosen by name and have not run where this was written.

What the library taught:
- Its progress thread turns all the time: 0.3 cores of a process that does nothing, 0.9 over sockets. Without
  it, a write over sockets moves only while the receiver calls in; the gate knows when that is.
- With the system's libibverbs, a process that used UCX crashes at its end unless `UCX_MODULES=^ib` is set
  before the library is loaded. An installation with RDMA sets UCX_MODULES itself.
- Plugins that cannot work are listed like those that can: only opening one tells.
"""

from __future__ import annotations

import importlib
import os
import threading
import uuid
from collections import Counter
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from runtime.transfer.base import BackendOptions, TransferError
from runtime.transfer.one_sided.backend import OneSidedBackend
from runtime.transfer.one_sided.fabric import Copy

INSTALL_HINT = "pip install 'pdctl[nixl]' (works with and without CUDA)"
_PACKAGES = ("nixl", "nixl_cu13")  # the first chooses among builds, and brings all; the second is one build
_SAFE_DEFAULTS = {
    "UCX_MODULES": "^ib",  # see above
    "NIXL_LOG_LEVEL": "WARN",  # its greetings go to stdout
}


class NixlFabric:
    """One agent. Calls into it are serialised by the library (its strict mode)."""

    name = "nixl"
    max_writes_in_flight = 65_536
    drain_s = 2.0
    needs_turns = True

    def __init__(self, plugin: str) -> None:
        for variable, value in _SAFE_DEFAULTS.items():
            os.environ.setdefault(variable, value)
        api, self.errors = _load_library()
        config = api.nixl_agent_config(
            backends=[plugin],
            enable_prog_thread=False,
            sync_mode=api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT,
        )
        try:
            self.agent = api.nixl_agent(f"pdctl-{uuid.uuid4()}", config)
        except (*self.errors, RuntimeError) as error:
            raise TransferError(f"nixl cannot start with the plugin `{plugin}`: {error}") from error
        if plugin not in self.agent.backends:
            raise TransferError(f"nixl has no plugin `{plugin}`, it has {', '.join(self.agent.plugin_list)}")
        self._registered = []
        self._users: Counter[str] = Counter()  # sessions by the agent they write to
        self._lock = threading.Lock()

    def register(self, address: int, num_bytes: int, device: int | None) -> None:
        rows = [(address, num_bytes, device or 0, "")]
        try:
            self._registered.append(self.agent.register_memory(rows, _memory_type(device)))
        except self.errors as error:
            raise TransferError(f"nixl cannot register {num_bytes} bytes: {error}") from error

    def describe(self) -> bytes:
        return self.agent.get_agent_metadata()

    def open(self, description: bytes) -> NixlPeer:
        try:
            found = self.agent.add_remote_agent(description)
        except self.errors as error:
            raise TransferError(f"not a description of a nixl agent: {error}") from error
        remote = found.decode() if isinstance(found, bytes) else found
        with self._lock:
            self._users[remote] += 1
        return NixlPeer(self, remote)

    def forget(self, remote: str) -> None:
        """A session to the agent ended."""
        with self._lock:
            self._users[remote] -= 1
            if self._users[remote]:
                return
        try:
            self.agent.remove_remote_agent(remote)
        except self.errors:
            return  # it is gone by itself

    def take_turn(self) -> None:
        try:
            self.agent.get_new_notifs()
        except self.errors as error:
            raise TransferError(f"nixl cannot go on: {error}") from error

    def close(self) -> None:
        for descriptors in self._registered:
            self.agent.deregister_memory(descriptors)
        self._registered.clear()


def _load_library() -> tuple[ModuleType, tuple[type[Exception], ...]]:
    """The API, and its errors, which share no base of their own. Raises TransferError."""
    missing: list[str] = []
    for package in _PACKAGES:
        try:
            api = importlib.import_module(f"{package}._api")
            bindings = importlib.import_module(f"{package}._bindings")
        except ImportError as error:
            missing.append(str(error))
            continue
        return api, tuple(one for name, one in vars(bindings).items() if name.endswith("Error"))
    raise TransferError(f"the library of the nixl backend is missing ({'; '.join(missing)}): {INSTALL_HINT}")


class NixlPeer:
    def __init__(self, fabric: NixlFabric, remote: str) -> None:
        self._fabric = fabric
        self._remote = remote

    def post(self, copies: Sequence[Copy]) -> NixlFlight:
        agent = self._fabric.agent
        src_device, dst_device = copies[0].src_device, copies[0].dst_device
        local = _rows([(one.src_address, one.num_bytes) for one in copies], src_device)
        remote = _rows([(one.dst_address, one.num_bytes) for one in copies], dst_device)
        try:
            transfer = agent.initialize_xfer(
                "WRITE",
                agent.get_xfer_descs(local, _memory_type(src_device)),
                agent.get_xfer_descs(remote, _memory_type(dst_device)),
                self._remote,
            )
            state = agent.transfer(transfer)
        except self._fabric.errors as error:
            raise TransferError(f"nixl refused {len(copies)} writes: {error}") from error
        return NixlFlight(self._fabric, transfer, state)

    def close(self) -> None:
        self._fabric.forget(self._remote)


def _memory_type(device: int | None) -> str:
    return "DRAM" if device is None else "VRAM"


def _rows(spans: list[tuple[int, int]], device: int | None) -> np.ndarray:
    """The library's table of places: uint64, [num_spans, (address, num_bytes, device)]."""
    rows = np.full((len(spans), 3), device or 0, dtype=np.uint64)
    rows[:, :2] = spans
    return rows


class NixlFlight:
    def __init__(self, fabric: NixlFabric, transfer, state: str) -> None:
        self._fabric = fabric
        self._transfer = transfer
        self._state = state  # "DONE", "PROC" or "ERR"

    def is_applied(self) -> bool:
        agent, errors = self._fabric.agent, self._fabric.errors
        try:
            if self._state == "PROC":
                self._state = agent.check_xfer_state(self._transfer)
            if self._state == "PROC":
                return False
            agent.release_xfer_handle(self._transfer)
        except errors as error:
            raise TransferError(f"nixl failed a write: {error}") from error
        if self._state != "DONE":
            raise TransferError(f"nixl failed a write: state {self._state}")
        return True


def open_backend(
    *, host: str, advertised_host: str, stall_timeout_s: float, options: BackendOptions | None = None
) -> OneSidedBackend:
    return OneSidedBackend(
        NixlFabric(options.plugin if options else BackendOptions().plugin),
        host=host,
        advertised_host=advertised_host,
        stall_timeout_s=stall_timeout_s,
        options=options,
    )
