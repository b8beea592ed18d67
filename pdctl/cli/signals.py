"""Signals that end pdctl: each as Ctrl-C, so that an act ends in good order, and as its own exit code.

Imported before everything else, so it takes nothing but what Python has at its start.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from types import FrameType


def raise_on_signals() -> None:
    """From now on, TERM and HUP raise `KeyboardInterrupt` with their number; `nohup` keeps its word."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _raise)


def tell_interrupt(interrupt: KeyboardInterrupt, *, words: str = "interrupted") -> int:
    """One line, and the exit code. Whoever loses patience now ends pdctl at once."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with contextlib.suppress(OSError):  # the terminal may be what went away
        print(words, file=sys.stderr, flush=True)
    return exit_code(interrupt.args[0] if interrupt.args else signal.SIGINT)


def forget_interrupt() -> None:
    """Let Python end with the code that it is given.

    An interrupt that comes while text is executed, as dataclasses do when they are made, counts as one that
    nobody caught, and Python ends itself by SIGINT. Executing text once more makes it forget that.
    """
    exec("")


def exit_code(signal_number: int) -> int:
    """What a shell reports for a program that the signal ended."""
    return 128 + signal_number


def _raise(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)
