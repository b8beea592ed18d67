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
        return self.values.get(path) or self._nearest(path)

    def key(self, *path: str | int) -> Span | None:
        return self.keys.get(path) or self.values.get(path) or self._nearest(path)

    def _nearest(self, path: DocumentPath) -> Span | None:
        """The key of the nearest parent: a mapping's own span is often no more than where it begins."""
        for length in range(len(path), -1, -1):
            span = self.keys.get(path[:length]) or self.values.get(path[:length])
            if span is not None:
                return span
        return None


def dotted(path: DocumentPath) -> str:
    """`("cluster", "nodes", 0)` as `cluster.nodes.0`."""
    return ".".join(str(part) for part in path)
