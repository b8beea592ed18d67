"""Command line entry: `python -m runtime.router --prefill URL [BOOTSTRAP_PORT] --decode URL`."""

from __future__ import annotations

import logging
import sys

import uvloop

from runtime.router.server import bind, serve
from runtime.router.settings import parse_settings


def main() -> int:
    settings = parse_settings()
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    # uvicorn reports each broken stream as an error with a traceback; ours are logged where they occur.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    try:
        listener = bind(settings.host, settings.port)
    except OSError as error:
        print(f"error: cannot listen on {settings.host}:{settings.port}: {error.strerror}", file=sys.stderr)
        return 1
    uvloop.run(serve(settings, listener))
    return 0


if __name__ == "__main__":
    sys.exit(main())
