"""Make a flag table of a wheel or an installed program; what can't be read is a diagnostic."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pdctl.diagnostics import DiagnosticError
from pdctl.flagtable.model import FlagTable
from pdctl.inspection.programs import PROGRAMS, NoFlagsError, inspect
from pdctl.inspection.sources import Folder, Found, SourceError, Wheel, locate, open_wheel
from pdctl.topology.nearest import suggest


def inspect_wheel(path: Path) -> FlagTable:
    try:
        found = open_wheel(path)
    except SourceError as error:
        raise _failure(str(error), "`pip download --no-deps sglang==VERSION` fetches a wheel") from error
    with closing(found.source):
        return _table(found)


def inspect_python(program: str, python: str) -> FlagTable:
    if program not in PROGRAMS:
        raise _failure(f"pdctl can't read the flags of `{program}`", suggest(program, PROGRAMS))
    try:
        return _table(locate(program, python))
    except SourceError as error:
        raise _failure(str(error), "give the interpreter that starts the program on the nodes") from error


def _table(found: Found[Folder] | Found[Wheel]) -> FlagTable:
    try:
        return inspect(found.program, found.version, found.source)
    except NoFlagsError as error:
        raise _failure(
            str(error), "this version declares its flags in a way that pdctl doesn't read"
        ) from error
    except (SyntaxError, ValueError) as error:
        raise _failure(
            f"the source of {found.source.label} can't be parsed: {error}",
            "run pdctl with a Python at least as new as the one that the program needs",
        ) from error


def _failure(message: str, hint: str | None) -> DiagnosticError:
    return DiagnosticError.one("PD239", message, help=hint)
