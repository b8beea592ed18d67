"""Who did what to a deployment, when, and how it ended: one JSON line each, only ever appended."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from pdctl.fields import FieldError, Fields, parse_fields
from pdctl.state.files import cannot, read_file


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    at: float  # seconds since the epoch, by the operator's clock
    who: str  # `user@host`
    verb: str
    outcome: str  # `done`, `failed`, `interrupted`
    changes: tuple[str, ...] = ()  # that it set out to make: `create prefill-[0-3].0`
    detail: str | None = None  # why it failed

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def entry_from_fields(fields: Fields) -> AuditEntry:
    """Read what `AuditEntry.to_json` gave; `FieldError` when it is damaged."""
    return AuditEntry(
        at=fields.number("at"),
        who=fields.text("who"),
        verb=fields.text("verb"),
        outcome=fields.text("outcome"),
        changes=fields.texts("changes"),
        detail=fields.optional_text("detail"),
    )


def readable_entries(found: Iterable[Fields]) -> list[AuditEntry]:
    """Without what is damaged, or of another version."""
    entries: list[AuditEntry] = []
    for fields in found:
        try:
            entries.append(entry_from_fields(fields))
        except FieldError:
            continue
    return entries


def merged(*histories: Iterable[AuditEntry]) -> tuple[AuditEntry, ...]:
    """Each entry once, oldest first: an operator's own lines lie with the deployment too."""
    return tuple(sorted(dict.fromkeys(chain.from_iterable(histories)), key=lambda entry: entry.at))


def append_audit(path: Path, entry: AuditEntry) -> None:
    """One write of one line, so that lines of several operators never mix."""
    line = json.dumps(entry.to_json(), ensure_ascii=False).encode() + b"\n"
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
            entries.append(entry_from_fields(parse_fields("an audit line", line)))
        except FieldError:
            continue
    return tuple(entries)
