"""The command line: one file per verb, imported when it is called. Only here does the program end itself."""

from __future__ import annotations

import sys


def main() -> None:
    from pdctl.cli.app import run

    sys.exit(run(sys.argv[1:]))
