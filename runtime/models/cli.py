"""The command line `python -m runtime.models`: list, pull, verify, path, remove."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from runtime.models.cache import PREFIX, cache_directory, cached_path, is_intact, resolve, ways_to_get
from runtime.models.catalog import CATALOG, BuiltinModel, find_model
from runtime.models.errors import ModelError, ModelUnavailable
from runtime.models.events import Failed, Sink
from runtime.models.fetch import pull, remove
from runtime.models.screen import JsonLines, PlainLines, TerminalBar

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None, *, catalog: Sequence[BuiltinModel] = CATALOG) -> int:
    """Run one command on the models of `catalog`; exit code 0, 1 after an error, 130 when interrupted."""
    options = _parser().parse_args(argv)
    sink = _sink(json_lines=options.command == "pull" and options.progress == "json")
    try:
        _run(options, catalog, cache_directory(), sink)
    except ModelError as error:
        sink(Failed(message=error.message, hint=error.hint))
        return 1
    except BrokenPipeError:  # whoever read us is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes at its exit
        return 1
    except OSError as error:
        sink(Failed(message=str(error), hint="PDCTL_CACHE_DIR names another folder for the cache"))
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def end_by_signals() -> None:
    """Let TERM and a lost terminal unwind like Ctrl-C, so that pip ends with us. For a process's start."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, interrupt)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m runtime.models", description="Built-in models and their cache."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="what there is, and what is in the cache")
    listing.add_argument("--json", action="store_true", help="one JSON array on stdout")
    for command, text in (
        ("pull", "fetch a model into the cache, or mend a damaged one"),
        ("verify", "read the cached file and compare its sha256"),
        ("path", "print where the cached file is"),
        ("remove", "delete the cached file"),
    ):
        commands.add_parser(command, help=text).add_argument("name")
    commands.choices["pull"].add_argument("--progress", choices=["text", "json"], default="text")
    return parser


def _run(options: argparse.Namespace, catalog: Sequence[BuiltinModel], directory: Path, sink: Sink) -> None:
    if options.command == "list":
        print(_as_json(catalog, directory) if options.json else _as_table(catalog, directory))
        return
    model = find_model(options.name.removeprefix(PREFIX), catalog)
    match options.command:
        case "pull":
            pull(model, directory=directory, sink=sink)
        case "verify":
            _verify(model, directory)
        case "path":
            print(resolve(PREFIX + model.name, catalog=catalog, directory=directory))
        case "remove":
            was_there = remove(model, directory=directory, sink=sink)
            print(f"`{model.name}` removed" if was_there else f"`{model.name}` was not in the cache")


def _verify(model: BuiltinModel, directory: Path) -> None:
    path = resolve(PREFIX + model.name, catalog=[model], directory=directory)
    if not is_intact(model, path):
        raise ModelUnavailable(
            f"`{path}` is not what it should be: its sha256 is not {model.sha256}",
            hint=ways_to_get(model, path),
        )
    print(f"`{model.name}` is intact: {path}")


def _as_json(catalog: Sequence[BuiltinModel], directory: Path) -> str:
    rows = [
        {
            "name": model.name,
            "size_bytes": model.size_bytes,
            "sha256": model.sha256,
            "licence": model.licence,
            "origin": model.origin,
            "source": f"{model.wheel.requirement} on the Python package index",
            "cached": _is_cached(model, directory),
            "path": str(cached_path(model, directory)),
        }
        for model in catalog
    ]
    return json.dumps(rows, indent=2)


def _as_table(catalog: Sequence[BuiltinModel], directory: Path) -> str:
    rows = [("NAME", "SIZE", "LICENCE", "CACHED", "PATH")]
    for model in catalog:
        size = f"{model.size_bytes / 1e6:.1f} MB"
        cached = "yes" if _is_cached(model, directory) else "no"
        rows.append((model.name, size, model.licence, cached, str(cached_path(model, directory))))
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _is_cached(model: BuiltinModel, directory: Path) -> bool:
    try:
        resolve(PREFIX + model.name, catalog=[model], directory=directory)
    except ModelUnavailable:
        return False
    return True


def _sink(*, json_lines: bool) -> Sink:
    if json_lines:
        return JsonLines(sys.stdout)
    return TerminalBar(sys.stderr) if sys.stderr.isatty() else PlainLines(sys.stderr)
