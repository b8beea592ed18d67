"""Who did what to a deployment, when, and how it ended: one JSON line each, only ever appended."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from pdctl.fields import FieldError, parse_fields
from pdctl.state.files import cannot, read_file


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    at: float  # seconds since the epoch
    who: str  # `user@host`
    verb: str
    outcome: str  # `done`, `failed`, `interrupted`
    detail: str | None = None  # such as `3 created, 1 replaced`, or the first fault


def append_audit(path: Path, entry: AuditEntry) -> None:
    """One write of one line, so that lines of several operators never mix."""
    line = json.dumps(asdict(entry), ensure_ascii=False).encode() + b"\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # the line before was cut off; don't lose this one with it
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise cannot("write", path, error) from error


def read_audit(path: Path) -> tuple[AuditEntry, ...]:
    """Oldest first. A line cut off by a full disk is left out: it must not hide the others."""
    entries: list[AuditEntry] = []
    for line in (read_file(path) or b"").splitlines():
        try:
            fields = parse_fields("an audit line", line)
            entries.append(
                AuditEntry(
                    at=fields.number("at"),
                    who=fields.text("who"),
                    verb=fields.text("verb"),
                    outcome=fields.text("outcome"),
                    detail=fields.optional_text("detail"),
                )
            )
        except FieldError:
            continue
    return tuple(entries)
