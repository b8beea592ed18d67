"""Ctrl-C, TERM and HUP at any moment: the first one ends the act in good order, a second one ends pdctl."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager

from pdctl.executors.base import Supervision


class Interrupted(Exception):
    """A signal ended the act. What runs goes on, and the next `up` or `down` finishes the job."""

    def __init__(self, name: str, running: tuple[str, ...] | None, signal_number: int) -> None:
        super().__init__(f"an act on {name} was interrupted")
        self.name = name
        self.running = running  # None: a second signal came before that was known
        self.signal_number = signal_number


@contextmanager
def interruptible(name: str, executor: Supervision) -> Generator[None]:
    """Turn the first KeyboardInterrupt into `Interrupted`, which tells what still runs."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise interrupted(name, executor, interrupt) from None


def interrupted(name: str, executor: Supervision, interrupt: KeyboardInterrupt) -> Interrupted:
    """What to raise in place of it."""
    return Interrupted(name, _running(name, executor), signal_of(interrupt))


def signal_of(interrupt: KeyboardInterrupt) -> int:
    """The signal behind it: Python's own stands for Ctrl-C and carries none."""
    return interrupt.args[0] if interrupt.args else signal.SIGINT


def _running(name: str, executor: Supervision) -> tuple[str, ...] | None:
    try:
        observed = executor.observe(name)
    except KeyboardInterrupt:
        return None
    return tuple(process.id for process in observed.processes if process.phase.is_alive)
