"""Exit codes."""

from __future__ import annotations

ERROR = 1  # wrong usage too: 2, what usage errors often are, already means something here
CHANGES_PENDING = 2  # `plan` and `diff` with `--exit-code`
INTERRUPTED = 130  # by Ctrl-C; other signals end with 128 and their number
READER_GONE = 141  # what a shell reports for a program that SIGPIPE ended
