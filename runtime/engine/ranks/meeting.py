"""How the ranks of an engine join: each comes to one port of the leader's node."""

from __future__ import annotations

import socket
from datetime import timedelta

import torch
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from runtime.engine.ranks.comm import Comm, TorchComm
from runtime.engine.ranks.shape import RankShape
from runtime.engine.settings import EngineSettings

MEETING_TIMEOUT = timedelta(minutes=30)  # nodes may be started one after the other


def rank_shape(settings: EngineSettings) -> RankShape:
    return RankShape(
        tp_size=settings.tp_size,
        tp_rank=settings.own_rank,
        attn_dp_size=settings.attn_dp_size,
        ep_size=settings.ep_size,
    )


def rank_device(settings: EngineSettings) -> str:
    """This rank's device: `cuda` without a number means that each rank of a node has its own, with one that
    all ranks of the node share it.
    """
    name = settings.device
    if name == "cpu" or ":" in name or settings.num_local_ranks == 1:
        return name
    return f"{name}:{settings.own_rank % settings.num_local_ranks}"


def meet(settings: EngineSettings, listener: socket.socket | None) -> Comm:
    """Wait for all ranks. `listener` is the leader's, and taken over; others know its address."""
    host, port = settings.meeting_address
    store = TCPStore(
        host,
        port,
        settings.tp_size,
        is_master=listener is not None,
        timeout=MEETING_TIMEOUT,
        master_listen_fd=None if listener is None else listener.detach(),
    )
    own_host = host if settings.nnodes == 1 else settings.host
    return TorchComm(
        store,
        settings.own_rank,
        settings.tp_size,
        host=own_host,
        device=torch.device(rank_device(settings)),
        is_device_shared=":" in settings.device and settings.num_local_ranks > 1,
    )
