"""Runs the application under uvicorn until a signal, and finishes what is in flight."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Generator

import uvicorn

from runtime.router import health
from runtime.router.app import RouterApp
from runtime.router.settings import RouterSettings

log = logging.getLogger(__name__)

BACKLOG = 2048
# libuv accepts one connection per listening descriptor and turn of its loop. Under load a turn takes many
# requests, so of 256 clients that come at once the last waited seconds. Duplicates share its queue.
NUM_ACCEPTS = 16
# Above the idle time of usual clients, so that they close first and no request meets a closing socket.
KEEP_ALIVE_S = 75


class _Server(uvicorn.Server):
    """uvicorn without its own signals: it ends by raising the signal again, and we promise exit code 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    def stop(self) -> None:
        """Finish what is in flight; asked twice, drop it."""
        self.force_exit = self.should_exit
        self.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError, also when the port is taken."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


async def serve(settings: RouterSettings, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT and then for the grace period at most."""
    app = RouterApp(settings)
    server = _Server(_config(app, settings))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    # What was built so far stays for ever: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    print(_ready_line(settings, listener), file=sys.stderr, flush=True)
    # A group, so that the router ends if the health checks do: without them it would be wrong and not say so.
    async with asyncio.TaskGroup() as group:
        polls = group.create_task(health.watch(app.workers, settings.health))
        await server.serve(sockets=[listener, *(listener.dup() for _ in range(NUM_ACCEPTS - 1))])
        polls.cancel()


def _ready_line(settings: RouterSettings, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    prefill = f"{len(settings.prefill)} prefill ({settings.prefill_policy})"
    decode = f"{len(settings.decode)} decode ({settings.decode_policy})"
    return f"router ready on http://{address}: {prefill}, {decode}"


def _config(app: RouterApp, settings: RouterSettings) -> uvicorn.Config:
    """Everything that costs time per request and that we do not use is off."""
    return uvicorn.Config(
        app,
        http="httptools",
        interface="asgi3",
        lifespan="off",
        ws="none",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        log_config=None,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_grace_s)),
    )
