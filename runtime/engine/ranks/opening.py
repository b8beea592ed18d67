"""A rank's start: its own backend, registered over its own pool, and its staging buffer or pool."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from runtime.engine.compute import Model
from runtime.engine.ranks.kv import Movers, RankKV, Report
from runtime.engine.ranks.shape import RankShape
from runtime.engine.settings import EngineSettings, Mode
from runtime.kv.layout import KVLayout
from runtime.kv.ring import RingError
from runtime.kv.staging_copy import block_bytes
from runtime.transfer.base import POOL, BackendOptions, TransferError
from runtime.transfer.plugins import load_backend
from runtime.transfer.staging.receiver import StagingReceiver
from runtime.transfer.staging.sender import StagingSender

_WILDCARDS = ("", "0.0.0.0", "::")


class EngineStartError(Exception):
    """The engine cannot start as it was asked to; the text is for the operator."""


def open_kv(settings: EngineSettings, model: Model, shape: RankShape, report: Report) -> RankKV | None:
    """What this rank exchanges KV with; nothing in unified mode. Raises EngineStartError."""
    if settings.mode is Mode.UNIFIED:
        return None
    with ExitStack() as undo:
        try:
            movers = _open_movers(settings, model, undo)
        except RingError as error:
            hint = "raise --staging-pool-mb or lower --staging-block-mb"
            raise EngineStartError(f"{error}: {hint}, or set --staging off") from error
        except (TransferError, OSError) as error:
            raise EngineStartError(f"cannot open the transfer backend: {error}") from error
        undo.pop_all()
    return RankKV(model, shape, movers, report)


def _open_movers(settings: EngineSettings, model: Model, undo: ExitStack) -> Movers:
    """Raises TransferError, RingError, OSError."""
    backend = load_backend(settings.transfer_backend)(
        host=settings.host,
        advertised_host=advertised_host(settings.host),
        stall_timeout_s=settings.waiting_timeout_s,
        options=BackendOptions(
            num_threads=settings.transfer_threads,
            num_queues=settings.transfer_queues,
            devices=settings.ib_devices,
            plugin=settings.nixl_plugin,
            protocol=settings.ascend_protocol,
            device_id=settings.own_rank % settings.num_local_ranks,
            is_receiver=settings.mode is Mode.DECODE,
        ),
    )
    undo.callback(backend.close)
    backend.register(POOL, model.pool)
    if not settings.staging or model.num_kv_heads == 1:  # one head, or latent row, always travels whole
        return Movers(backend=backend)
    layout = model.layout
    pool, slot_bytes = model.pool, _slot_bytes(settings, layout)
    if settings.mode is Mode.PREFILL:
        sender = StagingSender(
            pool,
            layout,
            backend,
            buffer_bytes=settings.transfer_queues * slot_bytes,
            slot_bytes=slot_bytes,
            stall_timeout_s=settings.waiting_timeout_s,
        )
        return Movers(backend=backend, sender=sender)
    receiver = StagingReceiver(
        pool,
        layout,
        backend,
        pool_bytes=settings.staging_pool_mb << 20,
        slot_bytes=slot_bytes,
        host=settings.host,
        advertised_host=advertised_host(settings.host),
    )
    return Movers(backend=backend, receiver=receiver)


def _slot_bytes(settings: EngineSettings, layout: KVLayout) -> int:
    """A block: what was asked for, else the pages of one prefill chunk, which begins and ends within pages.

    Decode counts with its own chunk size. A chunk that is larger than a block travels in several, so the
    pool must hold one page at least.
    """
    if settings.staging_block_mb is not None:
        return settings.staging_block_mb << 20
    page = block_bytes(layout, num_heads=layout.num_kv_heads, num_tokens=layout.page_size)
    num_pages = layout.num_pages_for(settings.chunked_prefill_size) + 1
    return page * max(1, min(num_pages, (settings.staging_pool_mb << 20) // page))


def advertised_host(host: str) -> str:
    """The address by which other machines reach a listener on `host`: a wildcard has none of its own."""
    if host not in _WILDCARDS:
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(
                ("192.0.2.1", 9)
            )  # TEST-NET: nothing is sent, the kernel only picks a source address
        except OSError:
            return "127.0.0.1"  # no route out of this machine
        return probe.getsockname()[0]
