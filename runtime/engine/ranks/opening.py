"""A rank's start: its own backend, registered over its own pool."""

from __future__ import annotations

import socket

from runtime.engine.compute import Model
from runtime.engine.ranks.kv import RankKV, Report
from runtime.engine.ranks.shape import RankShape
from runtime.engine.settings import EngineSettings, Mode
from runtime.transfer.base import POOL, TransferError
from runtime.transfer.plugins import load_backend

_WILDCARDS = ("", "0.0.0.0", "::")


class EngineStartError(Exception):
    """The engine cannot start as it was asked to; the text is for the operator."""


def open_kv(settings: EngineSettings, model: Model, shape: RankShape, report: Report) -> RankKV | None:
    """What this rank exchanges KV with; nothing in unified mode. Raises EngineStartError."""
    if settings.mode is Mode.UNIFIED:
        return None
    if not model.pool:
        raise EngineStartError(
            f"the KV pool is on `{settings.device}`, the backend `{settings.transfer_backend}` needs it "
            "in host memory"
        )
    try:
        backend = load_backend(settings.transfer_backend)(
            host=settings.host,
            advertised_host=advertised_host(settings.host),
            stall_timeout_s=settings.waiting_timeout_s,
        )
        backend.register(POOL, model.pool)
    except (TransferError, OSError) as error:
        raise EngineStartError(f"cannot open the transfer backend: {error}") from error
    return RankKV(model, shape, backend, report)


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
