"""Start one engine: `python -m runtime.engine --model-path ...`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runtime.engine.ranks.processes import (
    Node,
    end_process,
    live_no_longer_than_the_parent,
    start_others,
    stop_after_the_leader,
)
from runtime.engine.server.listen import ListenError, listen_on
from runtime.engine.settings import EngineSettings, parse_settings

if TYPE_CHECKING:
    from runtime.engine.server.state import ServedModel


def main(argv: Sequence[str] | None = None) -> int:
    """Become the leader of an engine, or another rank of it. Gives the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    settings = parse_settings(argv)
    _log_to_stderr(settings.log_level)
    if settings.tp_rank is not None:
        live_no_longer_than_the_parent()
        return _run_rank(settings)
    try:
        return _lead(settings, argv) if settings.node_rank == 0 else _follow(settings, argv)
    except ListenError as fault:
        sys.stderr.write(f"error: {fault}\n")
        return 1


def _lead(settings: EngineSettings, argv: Sequence[str]) -> int:
    """Take the port, then load and serve."""
    listener = listen_on(settings.host, settings.port)
    settings = replace(settings, port=listener.getsockname()[1])
    node: Node | None = None
    if settings.tp_size > 1:
        node = start_others(settings, argv, on_lost=end_process)
        settings = node.settings
    # Slow to import, so only now: a taken port is told at once.
    from runtime.engine.server.lifecycle import serve

    def load() -> ServedModel:
        from runtime.engine.server.loading import load_model

        return load_model(settings, node)

    return serve(settings, listener, load)


def _follow(settings: EngineSettings, argv: Sequence[str]) -> int:
    """Be the first rank of a further node, which has no port of its own."""
    stop_after_the_leader(settings)
    node = start_others(settings, argv, on_lost=end_process)
    exit_code = _run_rank(node.settings, node)
    node.others.close()
    return exit_code


def _run_rank(settings: EngineSettings, node: Node | None = None) -> int:
    from runtime.engine.ranks.worker import run_rank

    return run_rank(settings, on_stop=(lambda: None) if node is None else node.others.expect_ends)


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
