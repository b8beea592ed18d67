"""A command line that can't be right, and how it is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import typer

from pdctl.cli.verbs import HELP_OF_VERBS

_GLOBAL_OPTIONS = ("--color", "--quiet", "-q")


class UsageFault(typer.TyperException):
    """Raised where typer can't see the fault: its own are the same to `usage_lines`, without the hint."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def usage_lines(error: typer.TyperException, args: Sequence[str]) -> Iterator[str]:
    """One line that says what is wrong, and apart from it what to do."""
    message = error.format_message().strip().removesuffix(".")
    yield f"error: {message[:1].lower()}{message[1:]}"
    yield ""
    yield f"hint: {error.hint if isinstance(error, UsageFault) else _hint(message, args)}"


def _hint(message: str, args: Sequence[str]) -> str:
    verb = next((word for word in args if word in HELP_OF_VERBS), None)
    if verb is None:
        return "`pdctl --help` shows what there is"
    if any(f"option: {option}" in message for option in _GLOBAL_OPTIONS):
        return f"global options stand before the verb, as in `pdctl --quiet {verb} ...`"
    return f"`pdctl {verb} --help` shows what there is"
