"""Ask the runtime on this machine about models: another program, only JSON passes between it and pdctl."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import cast

from pdctl.diagnostics import DiagnosticError, Excerpt
from pdctl.events import EventSink, Preparing
from pdctl.fields import FieldError, Fields
from pdctl.views.models import KnownModel

MAX_LINE_BYTES = 1 << 20
EXCERPT_LINES = 10
LOCAL_NODE = "localhost"  # fetches happen on this machine
RUNTIME = (sys.executable, "-m", "runtime.models")


def known_models(program: Sequence[str] = RUNTIME) -> tuple[KnownModel, ...]:
    """Every built-in model, and whether it's in the cache here."""
    done = subprocess.run([*program, "list", "--json"], capture_output=True, check=False)
    try:
        rows: object = json.loads(done.stdout) if done.returncode == 0 else None
        if isinstance(rows, list):
            return tuple(_known_model(row) for row in cast("list[object]", rows))
    except (ValueError, FieldError):
        pass  # told below like any other failure, with what the runtime said
    raise _failure("models could not be listed", done.returncode, done.stderr)


def pull_model(name: str, sink: EventSink, program: Sequence[str] = RUNTIME) -> str:
    """Fetch one model; the path of its file. Raises `DiagnosticError` with the runtime's own words."""
    command = [*program, "pull", name, "--progress", "json"]
    path: str | None = None
    with (
        tempfile.TemporaryFile() as errors,  # a pipe that nobody empties meanwhile could block the fetch
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        told = process.stdout
        assert told is not None  # it is a pipe
        try:
            while line := told.readline(MAX_LINE_BYTES):
                path = _follow(_fields(line), name, sink) or path
            code = process.wait()
        finally:
            process.terminate()  # when we were interrupted; the fetch keeps what it has for the next time
        errors.seek(0)
        if code != 0 or path is None:
            raise _failure(f"`{name}` could not be fetched", code, errors.read(MAX_LINE_BYTES))
    return path


def _follow(said: Fields, name: str, sink: EventSink) -> str | None:
    """Pass one line on; the path, once it's told. A line that can't be read is no reason to stop a fetch."""
    try:
        return _told(said, name, sink)
    except FieldError:
        return None


def _told(said: Fields, name: str, sink: EventSink) -> str | None:
    match said.optional_text("event"):
        case "progress":
            received, total = said.integer("received_bytes"), said.integer("total_bytes")
            text = f"fetching {name}"
            sink.on(Preparing(node=LOCAL_NODE, text=text, received_bytes=received, total_bytes=total))
        case "waiting":
            sink.on(Preparing(node=LOCAL_NODE, text=f"another process fetches {name}"))
        case "done":
            return said.text("path")
        case "error":
            raise DiagnosticError.one("PD604", said.text("message"), help=said.optional_text("hint"))
        case _:
            pass  # a newer runtime may say more
    return None


def _fields(line: bytes) -> Fields:
    try:
        found: object = json.loads(line)
    except ValueError:
        found = None
    return Fields("the line", cast("dict[str, object]", found) if isinstance(found, dict) else {})


def _known_model(row: object) -> KnownModel:
    fields = Fields("the model", cast("dict[str, object]", row) if isinstance(row, dict) else {})
    return KnownModel(
        name=fields.text("name"),
        size_bytes=fields.integer("size_bytes"),
        licence=fields.text("licence"),
        is_cached=fields.flag("cached"),
        path=fields.text("path"),
    )


def _failure(message: str, code: int, errors: bytes) -> DiagnosticError:
    lines = tuple(errors.decode(errors="replace").splitlines()[-EXCERPT_LINES:])
    return DiagnosticError.one(
        "PD604",
        message,
        notes=(f"the runtime ended with {code}",),
        excerpts=(Excerpt(title="its last lines", lines=lines),) if lines else (),
    )
