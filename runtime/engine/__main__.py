"""Start one engine: `python -m runtime.engine --model-path ...`."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runtime.engine.ranks.processes import (
    Node,
    end_process,
    start_others,
    stop_after_the_leader,
)
from runtime.engine.server.listen import ListenError, listen_on
from runtime.engine.settings import EngineSettings, parse_settings

if TYPE_CHECKING:
    from runtime.engine.server.state import ServedModel


def main(argv: Sequence[str] | None = None) -> int:
    """Become the leader of an engine, or the first rank of a further node. Gives the exit code."""
    settings = parse_settings(argv)
    _log_to_stderr(settings.log_level)
    try:
        return _lead(settings) if settings.node_rank == 0 else _follow(settings)
    except ListenError as fault:
        sys.stderr.write(f"error: {fault}\n")
        return 1


def _lead(settings: EngineSettings) -> int:
    """Take the port, then load and serve."""
    listener = listen_on(settings.host, settings.port)
    settings = replace(settings, port=listener.getsockname()[1])
    node: Node | None = None
    if settings.tp_size > 1:
        node = _start_others(settings, own_sockets=(listener,))
        settings = node.settings
    # Slow to import, so only now: a taken port is told at once.
    from runtime.engine.server.lifecycle import serve

    def load() -> ServedModel:
        from runtime.engine.server.loading import load_model

        return load_model(settings, node)

    return serve(settings, listener, load)


def _follow(settings: EngineSettings) -> int:
    """Be the first rank of a further node, which has no port of its own."""
    stop_after_the_leader(settings)
    node = _start_others(settings)
    from runtime.engine.ranks.worker import run_rank

    exit_code = run_rank(node.settings, on_stop=node.others.expect_ends)
    node.others.close()
    return exit_code


def _start_others(settings: EngineSettings, own_sockets: Sequence[socket.socket] = ()) -> Node:
    """Fork them with everything imported that a rank needs."""
    from runtime.engine.ranks.worker import run_rank

    return start_others(settings, rank_main=run_rank, on_lost=end_process, own_sockets=own_sockets)


def _log_to_stderr(level: str) -> None:
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    if level != "debug":
        # Its info lines tell of its own start and stop; its warnings of every probe that speaks HTTP/2.
        logging.getLogger("uvicorn").setLevel(logging.ERROR)


if __name__ == "__main__":
    exit_code = main()
    # Everything of ours is closed by now. An interpreter that takes torch apart needs seconds more on a busy
    # machine, and whoever stops a deployment waits for them.
    logging.shutdown()
    os._exit(exit_code)
