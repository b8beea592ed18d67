"""Where a verb's words go: data to stdout, all else to stderr, both for people or both as JSON."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

import typer

from pdctl.cli import exits
from pdctl.cli.streams import Forgiving
from pdctl.diagnostics import Diagnostic, DiagnosticError, Severity
from pdctl.views.canvas import ColorMode, canvas_for

if TYPE_CHECKING:
    from pdctl.events import EventSink


DEFAULT_COLUMNS = 80


class ReaderGoneError(Exception):
    """Whoever read stdout has closed it."""


class WriteError(Exception):
    """stdout takes no more for another reason: a full disk, a failing device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Globals:
    """What stands before the verb, and the environment."""

    color: ColorMode
    is_quiet: bool
    environ: Mapping[str, str]


class Output:
    """The two streams of one verb."""

    def __init__(self, settings: Globals, *, as_json: bool) -> None:
        self.is_json = as_json
        self.is_quiet = settings.is_quiet
        self.environ = settings.environ
        self.out = canvas_for(
            sys.stdout,
            settings.color,
            settings.environ,
            terminal_columns=_columns(sys.stdout, settings.environ),
        )
        self.err = canvas_for(
            sys.stderr,
            settings.color,
            settings.environ,
            terminal_columns=_columns(sys.stderr, settings.environ),
        )
        self._stderr = Forgiving(sys.stderr)

    def show(self, value: object, lines: Iterable[str]) -> None:
        """The result: `value` as JSON, or `lines` for people, who see the same value drawn on `out`."""
        if not self.is_json:
            self.write(lines)
            return
        from pdctl.views.machine import to_json

        self.write([to_json(value)])

    def write(self, lines: Iterable[str], *, is_live: bool = False) -> None:
        """Lines to stdout; `is_live` when somebody waits for each."""
        for line in lines:
            _print(line, flush=is_live)
        _flush()

    def say(self, lines: Iterable[str]) -> None:
        """Words beside the result, for people; nothing in JSON or when quiet."""
        if not self.is_json and not self.is_quiet:
            for line in lines:
                print(line, file=self._stderr)

    def tell(self, value: object, lines: Iterable[str]) -> None:
        """What must be known even by those who asked for silence, to stderr."""
        if self.is_json:
            from pdctl.views.machine import to_json

            lines = [to_json(value, indent=None)]
        for line in lines:
            print(line, file=self._stderr)

    def diagnostics(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Faults to stderr; warnings only unless quiet. With `--json` one object."""
        shown = [each for each in diagnostics if each.severity is Severity.ERROR or not self.is_quiet]
        if not shown:
            return
        from pdctl.views.diagnostics import report_lines

        self.tell({"diagnostics": shown}, report_lines(shown, self.err))

    def progress(self) -> AbstractContextManager[EventSink]:
        """Where events go: nowhere when quiet, else to stderr as JSON lines, redrawn lines or plain ones."""
        if self.is_quiet:
            from pdctl.views.progress_plain import NoProgress

            return NoProgress()
        if self.is_json:
            from pdctl.views.progress_json import JsonProgress

            return JsonProgress(self._stderr)
        if self.err.live:
            from pdctl.views.progress_live import LiveProgress

            return LiveProgress(self._stderr, self.err)
        from pdctl.views.progress_plain import PlainProgress

        return PlainProgress(self._stderr)


def _columns(stream: TextIO, environ: Mapping[str, str]) -> int:
    """Of the terminal behind `stream`: the other stream may be a pipe, or another terminal."""
    said = environ.get("COLUMNS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_COLUMNS
    except (OSError, io.UnsupportedOperation):
        return DEFAULT_COLUMNS


def _print(line: str, *, flush: bool) -> None:
    with _blaming_stdout():
        print(line, flush=flush)


def _flush() -> None:
    with _blaming_stdout():
        sys.stdout.flush()


@contextmanager
def _blaming_stdout() -> Generator[None]:
    """Tell what stdout does from every other failure: only a write of ours stands inside."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGoneError from error
    except OSError as error:
        raise WriteError(f"cannot write the result: {error.strerror}") from error


@contextmanager
def output_of(ctx: typer.Context, *, as_json: bool) -> Generator[Output]:
    """The verb's output. Diagnostics that leave the block are shown there and end the verb with 1."""
    settings = ctx.find_object(Globals)
    assert settings is not None  # the root callback ran before any verb
    output = Output(settings, as_json=as_json)
    try:
        yield output
    except DiagnosticError as error:
        output.diagnostics(error.diagnostics)
        raise typer.Exit(exits.ERROR) from None
