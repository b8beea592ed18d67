"""Start one engine: `python -m runtime.engine --model-path ...`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runtime.engine.server.listen import ListenError, listen_on
from runtime.engine.settings import parse_settings

if TYPE_CHECKING:
    from runtime.engine.server.state import ServedModel


def main(argv: Sequence[str] | None = None) -> int:
    """Take the port, then load and serve. Gives the exit code."""
    settings = parse_settings(argv)
    _log_to_stderr(settings.log_level)
    try:
        listener = listen_on(settings.host, settings.port)
    except ListenError as fault:
        sys.stderr.write(f"error: {fault}\n")
        return 1
    settings = replace(settings, port=listener.getsockname()[1])
    # Slow to import, so only now: a taken port is told at once.
    from runtime.engine.server.lifecycle import serve

    def load() -> ServedModel:
        from runtime.engine.server.loading import load_model

        return load_model(settings)

    return serve(settings, listener, load)


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
