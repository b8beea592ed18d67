"""Find flag tables: those that ship with pdctl under `schemas/`, and the user's own.

Reading one is like importing a module: on demand, once, and the answer never changes while pdctl runs. The
rules ask first, so that compiling a plan finds it in memory. Own
tables lie in the folder that the variable PDCTL_FLAG_TABLES names, where `pdctl engine inspect --write` puts
them, and win over a shipped one of the same version.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pdctl.diagnostics import DiagnosticError
from pdctl.fields import FieldError
from pdctl.flagtable.codec import parse_table, table_text
from pdctl.flagtable.history import History, extended, history_text, parse_history
from pdctl.flagtable.model import FlagTable
from pdctl.flagtable.versions import in_order, nearest_lower
from pdctl.resources import resource_path

OWN_TABLES = "PDCTL_FLAG_TABLES"
HISTORY_FILE = "history.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenTable:
    """The table to hold a program against; `is_exact` when it is of just the version that was asked for."""

    table: FlagTable
    is_exact: bool


def load_flag_table(program: str, version: str) -> FlagTable | None:
    """The table of exactly this version; None where there is none."""
    return _table_in(_folders(program, os.environ.get(OWN_TABLES)), version)


@cache
def _table_in(folders: tuple[Path, ...], version: str) -> FlagTable | None:
    path = next((folder / f"{version}.json" for folder in folders if _has(folder, version)), None)
    if path is None:
        return None
    try:
        return parse_table(path.name, path.read_bytes())
    except (OSError, FieldError) as error:
        raise DiagnosticError.one(
            "PD238",
            f"the flag table `{path}` can't be read: {error}",
            help="write it anew with `pdctl engine inspect --write`",
        ) from error


def known_versions(program: str) -> tuple[str, ...]:
    """The versions that have a table, oldest first; empty for a program without tables."""
    return _versions_in(_folders(program, os.environ.get(OWN_TABLES)))


@cache
def _versions_in(folders: tuple[Path, ...]) -> tuple[str, ...]:
    found = {
        path.stem
        for folder in folders
        for path in folder.glob("*.json")
        if path.name != HISTORY_FILE and path.stem[:1].isdecimal()
    }
    return in_order(found)


def choose_table(program: str, version: str | None) -> ChosenTable | None:
    """The table of `version`, else of the nearest lower one; of the newest where none is stated.

    None for a program without tables.
    """
    if version is not None:
        exact = load_flag_table(program, version)
        if exact is not None:
            return ChosenTable(table=exact, is_exact=True)
    known = known_versions(program)
    if not known:
        return None
    chosen = known[-1] if version is None else nearest_lower(version, known)
    table = None if chosen is None else load_flag_table(program, chosen)
    return None if table is None else ChosenTable(table=table, is_exact=False)


@cache
def load_history(program: str) -> History:
    """The history that ships with pdctl; an empty one for a program without."""
    path = resource_path("schemas", program, HISTORY_FILE)
    return parse_history(path.name, path.read_bytes()) if path.is_file() else History()


def history(program: str, name: str) -> tuple[str, str] | None:
    """First and last sampled version that has the spelling `name`; None for one that was never seen."""
    return load_history(program).spans.get(name)


def keep(table: FlagTable, folder: Path) -> Path:
    """Write a table where PDCTL_FLAG_TABLES=`folder` finds it, and its version into the history beside it."""
    path = folder / table.program / f"{table.version}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(table_text(table), encoding="utf-8")
        past = path.with_name(HISTORY_FILE)
        before = parse_history(past.name, past.read_bytes()) if past.is_file() else History()
        past.write_text(history_text(extended(before, table)), encoding="utf-8")
    except (OSError, FieldError) as error:
        raise DiagnosticError.one("PD238", f"the flag table `{path}` can't be written: {error}") from error
    return path


@cache
def _folders(program: str, own: str | None) -> tuple[Path, ...]:
    shipped = resource_path("schemas", program)
    return (Path(own).expanduser() / program, shipped) if own else (shipped,)


def _has(folder: Path, version: str) -> bool:
    return "/" not in version and (folder / f"{version}.json").is_file()
