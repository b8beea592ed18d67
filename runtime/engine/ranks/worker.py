"""A rank that is not the leader: it loads its part of the model, then does what it is told."""

from __future__ import annotations

import sys
from collections.abc import Callable

from runtime.engine.build import describe_model
from runtime.engine.model.errors import ModelError
from runtime.engine.ranks.comm import Comm
from runtime.engine.ranks.commands import (
    COMMANDS,
    AllowAsked,
    ChecksumAsked,
    ConnectAsked,
    DescribeAsked,
    Invitation,
    Stop,
)
from runtime.engine.ranks.meeting import meet, rank_shape
from runtime.engine.ranks.opening import EngineStartError, open_kv
from runtime.engine.ranks.processes import end_process
from runtime.engine.ranks.rank import Rank
from runtime.engine.ranks.reports import WorkerLink
from runtime.engine.runner import load_runner
from runtime.engine.settings import EngineSettings


def run_rank(settings: EngineSettings, *, on_stop: Callable[[], object] = lambda: None) -> int:
    """Serve the leader. `on_stop` is called when it has said that all is over. Gives the exit code."""
    shape = rank_shape(settings)
    link = WorkerLink(shape.tp_rank, on_lost=end_process)
    try:
        comm = meet(settings, None)
        runner = load_runner(settings, shape, comm)
        rank = Rank(runner, open_kv(settings, describe_model(settings, runner, shape), shape, link.report))
    except (ModelError, EngineStartError) as fault:
        sys.stderr.write(f"error: rank {shape.tp_rank}: {fault}\n")
        return 1
    _serve(comm, rank, link)
    on_stop()
    link.close()
    rank.close()
    return 0


def _serve(comm: Comm, rank: Rank, link: WorkerLink) -> None:
    while True:
        match COMMANDS.unpack(comm.broadcast(None)):
            case Stop():
                return
            case Invitation() as invitation:
                link.dial(invitation)
            case DescribeAsked() | AllowAsked() | ConnectAsked() | ChecksumAsked() as asked:
                comm.gather(rank.answer(asked))
            case told:
                rank.do(told)
