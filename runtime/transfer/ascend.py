"""The `ascend` transfer backend: Huawei's memfabric, between the memories of NPUs and their hosts.

Written against the released memfabric-hybrid 1.3.0, and never run on its hardware. Tests hold it to that
package's signatures, to what `initialize` answers on a machine without an Ascend driver, and to a double of
the library for everything after that. So these are read, not seen: that a write is applied when its call
returns, that calls from several threads are served, that the library takes host memory (the pool of the
reference engine) with the protocol that is chosen, and the time that a broken write drains.

What the library taught:
- `initialize` asks the Ascend driver for its version before all else, and says only -1.
- `register_memory` says 0 also after that, so the result of `initialize` is the one to believe.
- Receivers serve the store in which peers find each other, each on a port that the library picks. Of the
  store's URL only the scheme is read, so there is no address to choose, and the session is known afterwards.
- The first write to a receiver connects to it. This, and each write, blocks without holding the GIL; the
  asynchronous calls want a stream of the NPU. So every receiver has threads here.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from runtime.transfer.base import BackendOptions, TransferError
from runtime.transfer.one_sided.backend import OneSidedBackend
from runtime.transfer.one_sided.fabric import Copy, read_session
from runtime.transfer.one_sided.lanes import LaneSizes

INSTALL_HINT = "pip install 'pdctl[ascend]', and the driver of the NPUs"

_ERRORS_ONLY = 3  # of its log levels; it tells of each step otherwise


class AscendFabric:
    name = "ascend"
    max_writes_in_flight = 4096
    drain_s = 10.0  # five times what other fabrics have: nobody measured it
    needs_turns = False

    def __init__(self, advertised_host: str, options: BackendOptions) -> None:
        """Raises TransferError, also for a protocol that the library hasn't got."""
        try:
            library = importlib.import_module("memfabric_hybrid")
        except (ImportError, OSError) as error:  # OSError: its own shared libraries do not load
            raise TransferError(
                f"the library of the ascend backend is missing ({error}): {INSTALL_HINT}"
            ) from error
        protocols = library.TransDataOpType.__members__
        protocol = protocols.get(options.protocol.upper())
        if protocol is None:
            known = ", ".join(name.lower() for name in protocols)
            raise TransferError(f"ascend has no protocol `{options.protocol}`, it has {known}")
        library.set_log_level(_ERRORS_ONLY)
        self._num_threads = LaneSizes.of(options).num_in_flight
        self._engine = library.TransferEngine()
        role = "Decode" if options.is_receiver else "Prefill"  # `Decode` serves the store
        code = self._engine.initialize(
            f"tcp://{advertised_host}", advertised_host, role, options.device_id, protocol
        )
        if code != 0:
            raise TransferError(
                f"ascend cannot start over {options.protocol} on NPU {options.device_id} of "
                f"{advertised_host}: code {code}; this machine needs an Ascend driver that memfabric supports"
            )
        self._session = f"{advertised_host}:{self._engine.get_rpc_port()}"
        self._registered: list[int] = []
        self._peers: list[AscendPeer] = []

    def register(self, address: int, num_bytes: int, device: int | None) -> None:
        """The library itself knows from an address whether it is the NPU's."""
        code = self._engine.register_memory(address, num_bytes)
        if code != 0:
            raise TransferError(f"ascend cannot register {num_bytes} bytes: code {code}")
        self._registered.append(address)

    def describe(self) -> bytes:
        return self._session.encode()

    def open(self, description: bytes) -> AscendPeer:
        session = read_session(description, library=self.name)
        peer = AscendPeer(self._engine, session, num_threads=self._num_threads)
        self._peers = [known for known in self._peers if not known.is_closed]
        self._peers.append(peer)
        return peer

    def take_turn(self) -> None:
        pass  # the NPUs write by themselves

    def close(self) -> None:
        """Waits for the writes under way: a library that is taken apart in a call of its own crashes."""
        for peer in self._peers:
            peer.close()
            peer.join()
        for address in self._registered:
            self._engine.unregister_memory(address)
        self._registered.clear()
        self._engine.unInitialize()


class AscendPeer:
    """Calls that block, on as many threads as batches may be under way."""

    def __init__(self, engine, session: str, *, num_threads: int) -> None:
        self._engine = engine
        self._session = session
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="kv-ascend")
        self.is_closed = False

    def post(self, copies: Sequence[Copy]) -> AscendFlight:
        src, dst, lengths = (list(column) for column in zip(*(copy[:3] for copy in copies), strict=True))
        call = self._threads.submit(self._engine.batch_transfer_sync_write, self._session, src, dst, lengths)
        return AscendFlight(call)

    def close(self) -> None:
        self.is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        self._threads.shutdown(wait=True)


class AscendFlight:
    def __init__(self, call: Future[int]) -> None:
        self._call = call

    def is_applied(self) -> bool:
        if not self._call.done():
            return False
        if self._call.cancelled():
            raise TransferError("ascend was closed before a write began")
        code = self._call.result()
        if code != 0:  # of either sign
            raise TransferError(f"ascend failed a write: code {code}")
        return True


def open_backend(
    *, host: str, advertised_host: str, stall_timeout_s: float, options: BackendOptions | None = None
) -> OneSidedBackend:
    return OneSidedBackend(
        AscendFabric(advertised_host, options or BackendOptions()),
        host=host,
        advertised_host=advertised_host,
        stall_timeout_s=stall_timeout_s,
        options=options,
    )
