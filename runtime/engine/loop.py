"""The engine thread: it owns the scheduler, and everything else reaches it through the mailbox."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from runtime.engine.live import abort
from runtime.engine.mailbox import Call, Mailbox
from runtime.engine.request import EngineStats, Finish, GenerateInput, Listener, TokenEvent
from runtime.engine.scheduler import Scheduler

IDLE_PAUSE_S = 0.1  # the resolution of time-outs; work that arrives ends the pause
CLOSE_TIMEOUT_S = 30.0

_log = logging.getLogger(__name__)


class EngineLoop:
    """An `Engine`. Its thread starts at once, and from then on owns `scheduler`."""

    def __init__(self, mailbox: Mailbox, scheduler: Scheduler, *, on_close: Callable[[], None]) -> None:
        self._mailbox = mailbox
        self._scheduler = scheduler
        self._on_close = on_close
        self._stats = scheduler.stats()
        self._calls: deque[Call] = deque()
        self._is_busy = False
        self._beat_s = time.monotonic()
        self._is_closing = False
        self._failure: str | None = None
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: GenerateInput, listener: Listener) -> None:
        if not self._mailbox.post(partial(self._scheduler.submit, request, listener)):
            listener(TokenEvent(rid=request.rid, finish=self._last_word()))

    def abort(self, rid: str) -> None:
        self._mailbox.post(partial(self._scheduler.abort, rid))

    def stats(self) -> EngineStats:
        return self._stats

    def heartbeat_age_s(self) -> float:
        return time.monotonic() - self._beat_s

    def close(self) -> None:
        with self._closing:
            self._is_closing = True
            self._mailbox.post(lambda: None)  # wakes the thread
            self._thread.join(CLOSE_TIMEOUT_S)
            self._on_close()

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._go_round()
        except Exception:  # the thread boundary: nobody above could answer the requests
            _log.exception("the engine loop failed")
            self._failure = "the engine loop failed, see its log"
        last_word = self._last_word()
        for call in (*self._calls, *self._mailbox.close()):
            call()  # what was submitted gets its answer below, like everything that is running
        self._scheduler.close(last_word)
        self._stats = self._scheduler.stats()

    def _go_round(self) -> None:
        self._calls = self._mailbox.take(0.0 if self._is_busy else IDLE_PAUSE_S)
        while self._calls:
            self._calls.popleft()()
        self._beat_s = time.monotonic()
        self._scheduler.sweep(self._beat_s)
        self._is_busy = self._scheduler.step()
        self._stats = self._scheduler.stats()

    def _last_word(self) -> Finish:
        return abort(self._failure or "the engine is shutting down", status=503)
