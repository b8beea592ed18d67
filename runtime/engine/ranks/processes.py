"""The other ranks of this node: one process each, which lives no longer than the one that started it.

The rank that is started from outside is the first of its node; standard output and error of the others are
its own. A pipe holds each two together: a rank that reads the end of its input is alone, and ends; a rank
that ends takes the whole engine with it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from runtime.engine.server.listen import listen_on
from runtime.engine.settings import EngineSettings

STOP_TIMEOUT_S = 10.0
_AFTER_GRACE_S = 5.0  # for the leader to end, once its running requests had their time

_log = logging.getLogger(__name__)


class LocalRanks:
    """Started at once. `on_lost` is told, on a thread, of a rank that ends before it is expected to."""

    def __init__(
        self, argv: Sequence[str], tp_ranks: Sequence[int], *, on_lost: Callable[[str], object]
    ) -> None:
        """`argv`: of this engine, after the program."""
        self._on_lost = on_lost
        self._is_closing = False
        self._processes = {rank: _start([*argv, "--tp-rank", str(rank)]) for rank in tp_ranks}
        for rank, process in self._processes.items():
            threading.Thread(
                target=self._watch, args=(rank, process), name=f"watch-rank-{rank}", daemon=True
            ).start()

    def expect_ends(self) -> None:
        """From now on ranks may end: they were told to."""
        self._is_closing = True

    def close(self) -> None:
        """End those that have not ended by themselves in time."""
        self._is_closing = True
        for process in self._processes.values():
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _watch(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        exit_code = process.wait()
        if not self._is_closing:
            self._on_lost(f"rank {rank} of this engine ended with {_describe(exit_code)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The ranks of this node, as the first of them sees them."""

    settings: EngineSettings  # with the address of the meeting
    others: LocalRanks
    meeting: socket.socket | None  # the leader's: where the ranks come to


def start_others(settings: EngineSettings, argv: Sequence[str], *, on_lost: Callable[[str], object]) -> Node:
    """Start this node's other ranks, before anything slow. Raises ListenError."""
    meeting = None
    if settings.own_rank == 0:
        # The ranks of one node meet at a port that this process holds already: nobody else can take it.
        host, port = ("127.0.0.1", 0) if settings.nnodes == 1 else settings.meeting_address
        meeting = listen_on(host, port)
        host, port = meeting.getsockname()[:2]
        settings = replace(settings, dist_init_addr=f"{host}:{port}")
    first = settings.own_rank
    others = LocalRanks(
        [*argv, "--dist-init-addr", str(settings.dist_init_addr)],
        range(first + 1, first + settings.num_local_ranks),
        on_lost=on_lost,
    )
    return Node(settings=settings, others=others, meeting=meeting)


def live_no_longer_than_the_parent() -> None:
    """In a rank that was started by another: end with it, and only with it.

    Whoever stops the engine signals all its processes; the leader alone decides when work is done.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_stdin, name="parent-watch", daemon=True).start()


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


def _start(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    # Nothing is written to the pipe: the child only waits for its end.
    return subprocess.Popen([sys.executable, "-m", "runtime.engine", *argv], stdin=subprocess.PIPE)


def _end_with_stdin() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def _describe(exit_code: int) -> str:
    return f"signal {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"
