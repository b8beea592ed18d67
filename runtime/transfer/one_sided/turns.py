"""Lets a fabric move while somebody writes: for libraries whose writes need the receiver's CPU.

The alternative is such a library's own progress thread, which turns all the time: on the machine where this
was written, NIXL's took 30 to 90 % of a core for a process that did nothing.
"""

from __future__ import annotations

import logging
import threading
import time

from runtime.transfer.base import TransferError
from runtime.transfer.one_sided.fabric import Fabric

SHORT_PAUSE_S, LONG_PAUSE_S = 20e-6, 1e-3
_PATIENCE_S = 0.05  # a batch that takes longer may wait a millisecond more

_log = logging.getLogger(__name__)


class Turns:
    """One thread, which sleeps for as long as no batch is under way."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._wake = threading.Condition()
        self._num_batches = 0
        self._busy_since_s = 0.0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="kv-turns", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        with self._wake:
            self._num_batches += 1
            self._busy_since_s = time.monotonic()
            self._wake.notify()

    def end(self) -> None:
        with self._wake:
            self._num_batches -= 1

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or self._num_batches)
                if self._closed:
                    return
                is_short = time.monotonic() - self._busy_since_s < _PATIENCE_S
            try:
                self._fabric.take_turn()
            except TransferError as error:
                _log.warning("%s: %s", self._fabric.name, error)
            time.sleep(SHORT_PAUSE_S if is_short else LONG_PAUSE_S)
