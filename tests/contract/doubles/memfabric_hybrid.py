"""A double of memfabric-hybrid 1.3.0: what the `ascend` backend calls of it, within one process.

The real one does nothing without an Ascend driver. `test_ascend.py` holds these signatures to its own.
"""

from __future__ import annotations

import ctypes
import enum
import itertools


class TransDataOpType(enum.Enum):
    SDMA = 1
    HOST_RDMA = 2
    DEVICE_RDMA = 8
    DEVICE_URMA = 64
    DEVICE_UBOE = 128


_ports = itertools.count(20_000)
_by_session: dict[str, TransferEngine] = {}


def set_log_level(level):
    return 0


class TransferEngine:
    """`started_as` is what `initialize` was told; the rest behaves as the real one is documented."""

    def __init__(self):
        self.started_as = None
        self._port = 0
        self._session = None
        self._registered: dict[int, int] = {}

    def initialize(
        self,
        store_url,
        session_id,
        role,
        device_id,
        data_op_type=TransDataOpType.SDMA,
        store_server_role="Decode",
        nic="",
    ):
        if role not in ("Prefill", "Decode"):
            return -1
        self.started_as = (store_url, session_id, role, device_id, data_op_type)
        self._port = next(_ports)
        self._session = f"{session_id}:{self._port}"
        _by_session[self._session] = self
        return 0

    def get_rpc_port(self):
        return self._port

    def register_memory(self, buffer_addr, capacity):
        self._registered[buffer_addr] = capacity
        return 0

    def unregister_memory(self, buffer_addr):
        return 0 if self._registered.pop(buffer_addr, None) is not None else -1

    def batch_transfer_sync_write(self, dest_session, buffers, peer_buffers, lengths, flags=0):
        peer = _by_session.get(dest_session)
        if peer is None:
            return -1
        for src, dst, num_bytes in zip(buffers, peer_buffers, lengths, strict=True):
            if not (self._has(src, num_bytes) and peer._has(dst, num_bytes)):
                return 2  # errors of the real one have either sign
            ctypes.memmove(dst, src, num_bytes)
        return 0

    def unInitialize(self):
        _by_session.pop(self._session, None)

    def _has(self, address, num_bytes):
        return any(
            start <= address and address + num_bytes <= start + size
            for start, size in self._registered.items()
        )
