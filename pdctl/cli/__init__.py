"""The command line: one file per verb, imported when it is called. Only here does the program end itself."""

from __future__ import annotations

import sys


def main() -> None:
    from pdctl.cli.signals import forget_interrupt, raise_on_signals, tell_interrupt

    try:
        raise_on_signals()
        from pdctl.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt as interrupt:  # modules are still imported, or the last words are said
        code = tell_interrupt(interrupt)
    forget_interrupt()
    sys.exit(code)
