"""Where every key and value of a document stands in its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pdctl.diagnostics import Span

DocumentPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMap:
    """Spans of keys and of values, by path. A path that isn't there answers with its nearest parent's."""

    values: Mapping[DocumentPath, Span] = field(default_factory=dict[DocumentPath, Span])
    keys: Mapping[DocumentPath, Span] = field(default_factory=dict[DocumentPath, Span])

    def value(self, *path: str | int) -> Span | None:
        return _nearest(path, self.values, self.keys)

    def key(self, *path: str | int) -> Span | None:
        return _nearest(path, self.keys, self.values)


def dotted(path: DocumentPath) -> str:
    """`("cluster", "nodes", 0)` as `cluster.nodes.0`."""
    return ".".join(str(part) for part in path)


def _nearest(
    path: DocumentPath, first: Mapping[DocumentPath, Span], second: Mapping[DocumentPath, Span]
) -> Span | None:
    if path in first:
        return first[path]
    for length in range(len(path), -1, -1):
        span = second.get(path[:length]) or first.get(path[:length])
        if span is not None:
            return span
    return None
