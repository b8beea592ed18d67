"""Puts an engine together: the model, the role that the mode asks for, the transfer backend, the loop."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack

from runtime.bootstrap.client import BootstrapError, register_rank
from runtime.bootstrap.registry import RankRecord
from runtime.bootstrap.server import BootstrapServer
from runtime.control.compat import Facts
from runtime.engine.compute import Model
from runtime.engine.decode import DecodeRole
from runtime.engine.loop import EngineLoop
from runtime.engine.mailbox import Mailbox, Post
from runtime.engine.prefill import PrefillRole
from runtime.engine.role import Desk, Role
from runtime.engine.runner import ModelRunner
from runtime.engine.sampling import TokenSampler
from runtime.engine.scheduler import Scheduler
from runtime.engine.settings import EngineSettings, Mode
from runtime.engine.unified import UnifiedRole
from runtime.kv.pool import PageAllocator
from runtime.transfer.base import POOL, TransferBackend, TransferError
from runtime.transfer.plugins import load_backend

_WILDCARDS = ("", "0.0.0.0", "::")


class EngineStartError(Exception):
    """The engine cannot start as it was asked to; the text is for the operator."""


def build_engine(settings: EngineSettings, runner: ModelRunner) -> EngineLoop:
    """Start the engine that the settings describe around a loaded model. Raises EngineStartError."""
    pool, config = runner.pool, runner.config
    model = Model(
        runner=runner,
        sampler=TokenSampler(settings.random_seed),
        allocator=PageAllocator(pool.layout.num_pages),
        layout=pool.layout,
        pool=pool.memory() if pool.device.type == "cpu" else memoryview(b""),
        vocab_size=config.vocab_size,
        context_len=settings.context_length or config.max_position,
        eos_token_ids=frozenset(config.eos_token_ids),
    )
    return start_engine(settings, model)


def start_engine(settings: EngineSettings, model: Model) -> EngineLoop:
    """Start an engine. In prefill mode it listens and is registered when this returns."""
    mailbox = Mailbox()
    with ExitStack() as undo:
        scheduler = Scheduler(
            model,
            max_running=settings.max_running_requests,
            chunk_size=settings.chunked_prefill_size,
            open_role=_role_opener(settings, model, mailbox.post, undo),
        )
        return EngineLoop(mailbox, scheduler, on_close=undo.pop_all().close)
    raise AssertionError("the block returns or raises")


def _role_opener(
    settings: EngineSettings, model: Model, post: Post, undo: ExitStack
) -> Callable[[Desk], Role]:
    """How the scheduler gets its role. `undo` collects what to close after a failure, or at the end."""

    def open_role(desk: Desk) -> Role:
        if settings.mode is Mode.UNIFIED:
            return UnifiedRole(desk)
        backend = _open_backend(settings, model)
        undo.callback(backend.close)
        facts = Facts.of_pool(model.layout, settings.dtype)
        if settings.mode is Mode.DECODE:
            decode = DecodeRole(desk, model=model, facts=facts, settings=settings, backend=backend, post=post)
            undo.callback(decode.close)
            return decode
        prefill = PrefillRole(desk, model=model, facts=facts, settings=settings, backend=backend, post=post)
        undo.callback(prefill.close)
        _announce(settings, facts, prefill, undo)
        return prefill

    return open_role


def _open_backend(settings: EngineSettings, model: Model) -> TransferBackend:
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
    return backend


def _announce(settings: EngineSettings, facts: Facts, prefill: PrefillRole, undo: ExitStack) -> None:
    """Open the port for decode engines, start the bootstrap server, and register with it."""
    rank_port = prefill.listen(settings.host)
    try:
        bootstrap = BootstrapServer(settings.host, settings.bootstrap_port)
    except OSError as error:
        where = f"{settings.host}:{settings.bootstrap_port}"
        raise EngineStartError(f"cannot serve the bootstrap port {where}: {error}") from error
    undo.callback(bootstrap.close)
    record = RankRecord(
        rank_ip=advertised_host(settings.host),
        rank_port=rank_port,
        page_size=facts.page_size,
        kv_cache_dtype=facts.dtype,
        kv_layout=facts.layout,
        prefill_http_port=settings.port or None,
    )
    try:
        register_rank(advertised_host(settings.host), bootstrap.port, record)
    except BootstrapError as error:
        raise EngineStartError(f"cannot register this prefill rank: {error}") from error


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
