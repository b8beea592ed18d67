"""The digest of what a topology says: comments, key order, `x-` keys and spelled-out defaults aside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from pdctl.models.facts import ModelFacts
from pdctl.topology.model import Topology
from pdctl.topology.source import SourceMap


def topology_digest(topology: Topology) -> str:
    """sha256, in hex, of the canonical JSON form.

    What the document leaves open (None, or nothing in a list or mapping) is left out, so that a field which a
    later pdctl adds doesn't change the digest of documents that don't use it.
    """
    fields = asdict(replace(topology, source=SourceMap(), facts=ModelFacts()))
    del fields["source"], fields["facts"], fields["is_rehearsal"]
    text = json.dumps(_stated(fields), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _stated(value: Any) -> Any:
    match value:
        case Mapping():
            parts = ((name, _stated(part)) for name, part in value.items())  # pyright: ignore
            return {name: part for name, part in parts if part not in (None, [], {})}  # pyright: ignore
        case tuple() | list():
            return [_stated(part) for part in value]  # pyright: ignore
        case _:
            return value
