"""Ctrl-C at any moment: the first one ends the act in good order, a second one ends pdctl."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pdctl.executors.base import Supervision


class Interrupted(Exception):
    """The operator pressed Ctrl-C. What runs goes on, and the next `up` or `down` finishes the job."""

    def __init__(self, name: str, running: tuple[str, ...]) -> None:
        super().__init__(f"interrupted while {', '.join(running) or 'nothing'} of {name} runs")
        self.name = name
        self.running = running


@contextmanager
def interruptible(name: str, executor: Supervision) -> Generator[None]:
    """Turn the first KeyboardInterrupt into `Interrupted`, which tells what still runs."""
    try:
        yield
    except KeyboardInterrupt:
        observed = executor.observe(name)
        running = tuple(process.id for process in observed.processes if process.phase.is_alive)
        raise Interrupted(name, running) from None
