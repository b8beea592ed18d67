"""Serve from the first second: 503 while the model loads, then answers, then a drain when told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import uvicorn
import uvloop

from runtime.engine.server.app import build_app
from runtime.engine.server.state import Phase, ServedModel, ServerState
from runtime.engine.settings import EngineSettings, Mode

log = logging.getLogger(__name__)

_AFTER_GRACE_S = 2.0  # for the error answers of aborted requests to reach their clients
_KEEP_ALIVE_S = 75  # longer than routers keep an idle connection, so that they never write to one just closed


class LoadError(Exception):
    """The model can't be served for a reason that the operator can fix; the message says which."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which end the process by the signal where we exit with 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(settings: EngineSettings, listener: socket.socket, load: Callable[[], ServedModel]) -> int:
    """Run until a signal or a failed start; gives the exit code.

    `load` runs in a thread of its own and may raise `LoadError`, whose message is then all that is printed.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, listener, load))


async def _serve(settings: EngineSettings, listener: socket.socket, load: Callable[[], ServedModel]) -> int:
    return await _Lifecycle(settings, load).run(listener)


class _Lifecycle:
    """One run of the server. Everything but `_load` happens on the event loop."""

    def __init__(self, settings: EngineSettings, load: Callable[[], ServedModel]) -> None:
        self._settings = settings
        self._load_model = load
        self._loop = asyncio.get_running_loop()
        self._state = ServerState(settings)
        self._server = _Server(_uvicorn_config(settings, self._state))
        self._model: ServedModel | None = None
        self._exit_code = 0

    async def run(self, listener: socket.socket) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal, number)
        threading.Thread(target=self._load, name="load-model", daemon=True).start()
        await self._server.serve(sockets=[listener])
        if self._model is None:
            # The loader can't be interrupted, and its native code must not outlive the interpreter.
            _exit_now(self._exit_code)
        await asyncio.to_thread(self._model.engine.close)
        return self._exit_code

    def _load(self) -> None:
        """In a thread of its own. Whatever goes wrong, nobody must wait for a model that never comes."""
        model: ServedModel | None = None
        try:
            model = self._load_model()
        except LoadError as fault:
            _say(f"error: {fault}")
        finally:  # an unforeseen fault goes on to print its traceback
            with contextlib.suppress(RuntimeError):  # the loop was closed by a signal meanwhile
                self._loop.call_soon_threadsafe(self._on_loaded, model)

    def _on_loaded(self, model: ServedModel | None) -> None:
        self._model = model
        if model is None:
            self._stop(exit_code=1)
        elif self._state.phase is not Phase.STOPPING:
            self._become_ready(model)

    def _become_ready(self, model: ServedModel) -> None:
        self._state.become_ready(model)
        role = "unified" if self._settings.mode is Mode.UNIFIED else self._settings.mode.value
        _say(
            f"ready: {role} {self._settings.host}:{self._settings.port} "
            f"model={self._settings.served_model_name} "
            f"pool_tokens={model.num_pool_tokens} context={model.context_len} "
            f"after={time.time() - self._state.started_at_s:.1f}s"
        )

    def _on_signal(self, number: int) -> None:
        if self._state.phase is Phase.STOPPING:
            _exit_now(128 + number)
        grace_s = self._settings.shutdown_grace_s
        log.info("%s: finishing running requests for at most %g s", signal.Signals(number).name, grace_s)
        self._stop(exit_code=0)
        self._loop.call_later(grace_s, self._end_grace)

    def _stop(self, *, exit_code: int) -> None:
        self._exit_code = exit_code
        self._state.phase = Phase.STOPPING
        self._server.should_exit = True

    def _end_grace(self) -> None:
        """Abort what still runs, so that its clients hear of it instead of a broken connection."""
        if self._model is not None:
            self._loop.run_in_executor(None, self._model.engine.close)


def _uvicorn_config(settings: EngineSettings, state: ServerState) -> uvicorn.Config:
    return uvicorn.Config(
        build_app(state),
        loop="none",  # the one that runs already
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=settings.log_level == "debug",
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(settings.shutdown_grace_s + _AFTER_GRACE_S),
    )


def _say(line: str) -> None:
    """A line for whoever started us, free of time and level so that it can be searched for."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _exit_now(exit_code: int) -> NoReturn:
    logging.shutdown()
    os._exit(exit_code)
