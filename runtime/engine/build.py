"""Puts an engine together: the model, its ranks, the role that the mode asks for, the loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from runtime.bootstrap.client import BootstrapError, register_rank
from runtime.bootstrap.registry import RankRecord
from runtime.bootstrap.server import BootstrapServer
from runtime.bootstrap.token import Token, TokenError, read_token
from runtime.control.compat import Facts
from runtime.engine.compute import Model
from runtime.engine.decode import DecodeRole
from runtime.engine.loop import EngineLoop
from runtime.engine.mailbox import Mailbox, Post
from runtime.engine.prefill import PrefillRole
from runtime.engine.ranks.comm import Alone, Comm
from runtime.engine.ranks.commands import Stop
from runtime.engine.ranks.group import GroupKV, GroupRunner, RankGroup
from runtime.engine.ranks.opening import EngineStartError, advertised_host, open_kv
from runtime.engine.ranks.processes import LocalRanks
from runtime.engine.ranks.rank import Rank
from runtime.engine.ranks.reports import LINK_TIMEOUT_S, LeaderLinks, OnLost, Reports
from runtime.engine.ranks.shape import RankShape
from runtime.engine.role import Desk, Role
from runtime.engine.runner import ModelRunner
from runtime.engine.sampling import TokenSampler
from runtime.engine.scheduler import Scheduler
from runtime.engine.settings import EngineSettings, Mode
from runtime.engine.unified import UnifiedRole
from runtime.kv.pool import PageAllocator


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The ranks of an engine as its leader starts it."""

    comm: Comm
    shape: RankShape  # the leader's
    on_lost: OnLost
    processes: LocalRanks | None = None  # of the leader's own node


def only_rank() -> Ranks:
    return Ranks(comm=Alone(), shape=RankShape(), on_lost=lambda reason: None)


def describe_model(settings: EngineSettings, runner: ModelRunner, shape: RankShape) -> Model:
    """What the loop needs to know of a loaded model; every rank comes to the same."""
    pool, config = runner.pool, runner.config
    return Model(
        runner=runner,
        sampler=TokenSampler(settings.random_seed),
        allocators=tuple(PageAllocator(pool.layout.num_pages) for _ in range(shape.attn_dp_size)),
        layout=pool.layout,
        num_kv_heads=config.num_slot_heads,
        pool=pool.memory(),
        vocab_size=config.vocab_size,
        context_len=settings.context_length or config.max_position,
        eos_token_ids=frozenset(config.eos_token_ids),
    )


def start_engine(settings: EngineSettings, model: Model, ranks: Ranks | None = None) -> EngineLoop:
    """Start an engine. In prefill mode it listens and is registered when this returns.

    Runs on the leader; the other ranks take its commands by now. Raises EngineStartError.
    """
    ranks = ranks or only_rank()
    mailbox = Mailbox()
    with ExitStack() as undo:
        group, kv = _open_group(settings, model, ranks, undo)
        if ranks.comm.size > 1:
            model = replace(model, runner=GroupRunner(model.runner, group, ranks.on_lost))
        scheduler = Scheduler(
            model,
            max_running=settings.max_running_requests,
            chunk_size=settings.chunked_prefill_size,
            open_role=_role_opener(settings, model, kv, mailbox.post, undo),
            rooms_choose_lanes=settings.mode is Mode.PREFILL,
        )
        return EngineLoop(mailbox, scheduler, on_close=undo.pop_all().close)
    raise AssertionError("the block returns or raises")


def _open_group(
    settings: EngineSettings, model: Model, ranks: Ranks, undo: ExitStack
) -> tuple[RankGroup, GroupKV]:
    """All ranks under one command, each linked to this one. `undo` collects what to close, last first."""
    reports = Reports()
    rank = Rank(model.runner, open_kv(settings, model, ranks.shape, reports.take))
    undo.callback(rank.close)
    group = RankGroup(ranks.comm, rank)
    if ranks.comm.size > 1:
        links = LeaderLinks(settings.host, reports, on_lost=ranks.on_lost)
        undo.callback(_stop_others, ranks, links, group)
        group.tell_others(links.invitation(advertised_host(settings.host)))
        if not links.wait_for(ranks.comm.size - 1):
            raise EngineStartError(f"not every rank linked up with its leader within {LINK_TIMEOUT_S:g} s")
    return group, GroupKV(group, reports, model, ranks.shape)


def _stop_others(ranks: Ranks, links: LeaderLinks, group: RankGroup) -> None:
    links.expect_ends()
    if ranks.processes is not None:
        ranks.processes.expect_ends()
    group.tell_others(Stop())
    if ranks.processes is not None:
        ranks.processes.close()
    links.close()


def _role_opener(
    settings: EngineSettings, model: Model, kv: GroupKV, post: Post, undo: ExitStack
) -> Callable[[Desk], Role]:
    """How the scheduler gets its role. `undo` collects what to close after a failure, or at the end."""

    def open_role(desk: Desk) -> Role:
        if settings.mode is Mode.UNIFIED:
            return UnifiedRole(desk)
        token = _bootstrap_token(settings)
        facts = Facts.of_pool(model.layout, settings.dtype, num_kv_heads=model.num_kv_heads)
        if settings.mode is Mode.DECODE:
            decode = DecodeRole(
                desk, model=model, facts=facts, settings=settings, kv=kv, post=post, token=token
            )
            undo.callback(decode.close)
            return decode
        prefill = PrefillRole(desk, model=model, facts=facts, settings=settings, kv=kv, post=post)
        undo.callback(prefill.close)
        _announce(settings, facts, prefill, kv.shape, token, undo)
        return prefill

    return open_role


def _bootstrap_token(settings: EngineSettings) -> Token | None:
    if settings.bootstrap_token_file is None:
        return None
    try:
        return read_token(settings.bootstrap_token_file)
    except TokenError as error:
        raise EngineStartError(str(error)) from error


def _announce(
    settings: EngineSettings,
    facts: Facts,
    prefill: PrefillRole,
    shape: RankShape,
    token: Token | None,
    undo: ExitStack,
) -> None:
    """Open the port for decode engines, start the bootstrap server, and register every rank with it.

    All ranks are at the leader's address: it speaks for them, and they do as it says.
    """
    host, rank_port = advertised_host(settings.host), prefill.listen(settings.host)
    try:
        bootstrap = BootstrapServer(settings.host, settings.bootstrap_port, token)
    except OSError as error:
        where = f"{settings.host}:{settings.bootstrap_port}"
        raise EngineStartError(f"cannot serve the bootstrap port {where}: {error}") from error
    undo.callback(bootstrap.close)
    for rank in range(shape.tp_size):
        one = shape.at(rank)
        record = RankRecord(
            attn_tp_size=one.attn_tp_size,
            attn_tp_rank=one.attn_tp_rank,
            attn_dp_size=one.attn_dp_size,
            attn_dp_rank=one.attn_dp_rank,
            rank_ip=host,
            rank_port=rank_port,
            page_size=facts.page_size,
            kv_cache_dtype=facts.dtype,
            kv_layout=facts.layout,
            prefill_http_port=settings.port or None,
        )
        try:
            register_rank(host, bootstrap.port, record, token)
        except BootstrapError as error:
            raise EngineStartError(f"cannot register prefill rank {rank}: {error}") from error
