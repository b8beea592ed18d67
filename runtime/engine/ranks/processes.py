"""The other ranks of this node: one process each, which lives no longer than the one that started it.

The rank that is started from outside is the first of its node; standard output and error of the others are
its own. It imports torch, then forks the others, so that eight ranks cost one import, in seconds and in
memory. A pipe holds each two together: a rank that finds its parent gone ends; a rank that ends takes the
whole engine with it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from typing import NoReturn

from runtime.engine.server.listen import listen_on
from runtime.engine.settings import EngineSettings

STOP_TIMEOUT_S = 10.0
_AFTER_GRACE_S = 5.0  # for the leader to end, once its running requests had their time

_log = logging.getLogger(__name__)


RankMain = Callable[[EngineSettings], int]
"""What a forked rank does, with its own `tp_rank` in the settings; gives the exit code."""


class LocalRanks:
    """`on_lost` is told, on a thread, of a rank that ends before it is expected to."""

    def __init__(self, forked: dict[int, BaseProcess], *, on_lost: Callable[[str], object]) -> None:
        """`forked`: by tp_rank, started."""
        self._on_lost = on_lost
        self._is_closing = False
        self._watches = {
            process: threading.Thread(
                target=self._watch, args=(rank, process), name=f"watch-rank-{rank}", daemon=True
            )
            for rank, process in forked.items()
        }
        for watch in self._watches.values():
            watch.start()

    def expect_ends(self) -> None:
        """From now on ranks may end: they were told to."""
        self._is_closing = True

    def close(self) -> None:
        """End those that have not ended by themselves in time."""
        self._is_closing = True
        # Each process is waited for by its watch alone: a second waiter might signal a pid that is another's.
        for process, watch in self._watches.items():
            watch.join(STOP_TIMEOUT_S)
            if watch.is_alive():
                process.kill()
                watch.join()

    def _watch(self, rank: int, process: BaseProcess) -> None:
        process.join()
        if not self._is_closing:
            self._on_lost(f"rank {rank} of this engine ended with {_describe(process.exitcode or 0)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The ranks of this node, as the first of them sees them."""

    settings: EngineSettings  # with the address of the meeting
    others: LocalRanks
    meeting: socket.socket | None  # the leader's: where the ranks come to


def start_others(
    settings: EngineSettings,
    *,
    rank_main: RankMain,
    on_lost: Callable[[str], object],
    own_sockets: Sequence[socket.socket] = (),
) -> Node:
    """Fork this node's other ranks, before anything here runs a thread that takes locks.

    `own_sockets`: what they must not keep open. Raises ListenError.
    """
    meeting = None
    if settings.own_rank == 0:
        # The ranks of one node meet at a port that this process holds already: nobody else can take it.
        host, port = ("127.0.0.1", 0) if settings.nnodes == 1 else settings.meeting_address
        meeting = listen_on(host, port)
        host, port = meeting.getsockname()[:2]
        settings = replace(settings, dist_init_addr=f"{host}:{port}")
        own_sockets = (*own_sockets, meeting)
    forked: dict[int, BaseProcess] = {}
    for rank in range(settings.own_rank + 1, settings.own_rank + settings.num_local_ranks):
        target = (replace(settings, tp_rank=rank), rank_main, own_sockets)
        forked[rank] = multiprocessing.get_context("fork").Process(target=_be_rank, args=target)
        forked[rank].start()
    return Node(settings=settings, others=LocalRanks(forked, on_lost=on_lost), meeting=meeting)


def _be_rank(
    settings: EngineSettings, rank_main: RankMain, sockets_of_parent: Sequence[socket.socket]
) -> NoReturn:
    """In a forked rank. A port that it kept open would take connections that nobody serves."""
    for each in sockets_of_parent:
        each.close()
    _live_no_longer_than_the_parent()
    exit_code = rank_main(settings)
    logging.shutdown()
    os._exit(exit_code)


def _live_no_longer_than_the_parent() -> None:
    """In a rank that was started by another: end with it, and only with it.

    Whoever stops the engine signals all its processes; the leader alone decides when work is done.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, name="parent-watch", daemon=True).start()


def stop_after_the_leader(settings: EngineSettings) -> None:
    """In the first rank of a further node: the leader got the same signal, and says when work is done."""
    patience_s = settings.shutdown_grace_s + _AFTER_GRACE_S
    signals = {signal.SIGTERM, signal.SIGINT}
    # The main thread waits in native code, where Python runs no handler of its own.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)

    def wait() -> None:
        number = signal.sigwait(signals)
        _log.info("%s: waiting at most %g s for the leader", signal.Signals(number).name, patience_s)
        time.sleep(patience_s)
        os._exit(0)

    threading.Thread(target=wait, name="signal-watch", daemon=True).start()


def end_process(reason: str) -> None:
    """Say why, and end at once: native code of other threads waits for ranks that are gone."""
    sys.stderr.write(f"error: {reason}\n")
    sys.stderr.flush()
    os._exit(1)


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this rank was forked"
    parent.join()
    os._exit(1)


def _describe(exit_code: int) -> str:
    return f"signal {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"
