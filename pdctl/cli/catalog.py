"""What a topology can name, collected from where each kind lives."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path

from pdctl import plugins
from pdctl.cli.model_process import known_models
from pdctl.resources import resource_path
from pdctl.views.listing import Entry
from pdctl.views.models import described


class Kind(StrEnum):
    TOPOLOGIES = "topologies"
    ENGINES = "engines"
    ROUTERS = "routers"
    EXECUTORS = "executors"
    BACKENDS = "backends"
    MODELS = "models"


def catalog(kinds: Iterable[Kind]) -> tuple[Entry, ...]:
    """Every name of these kinds."""
    return tuple(entry for kind in kinds for entry in _entries(kind))


def _entries(kind: Kind) -> Iterator[Entry]:
    match kind:
        case Kind.TOPOLOGIES:
            for path in sorted(resource_path("topologies").glob("*.yaml")):
                yield Entry(kind=kind, name=_shown_path(path), about=_first_comment(path))
        case Kind.ENGINES | Kind.ROUTERS | Kind.EXECUTORS:
            for name in plugins.names(kind.value):
                yield Entry(kind=kind, name=name)
        case Kind.BACKENDS:
            for name in _backends():
                yield Entry(kind=kind, name=name)
        case Kind.MODELS:
            for model in known_models():
                yield Entry(kind=kind, name=f"builtin:{model.name}", about=described(model))


def _shown_path(path: Path) -> str:
    """Relative where that is short, so that it can be pasted behind `pdctl up`."""
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near


def _first_comment(path: Path) -> str:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("# ").rstrip() if first.startswith("#") else ""


def _backends() -> list[str]:
    """The schema names them; they are the one thing here that is no plug-in of pdctl but of the runtime."""
    schema = json.loads(resource_path("schemas", "topology.schema.json").read_text(encoding="utf-8"))
    return list(schema["properties"]["transfer"]["properties"]["backend"]["examples"])
