"""Built-in models for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pdctl.views.canvas import Canvas
from pdctl.views.columns import Column, Row, table_lines
from pdctl.views.quantities import size

COLUMNS = (
    Column(title="MODEL"),
    Column(title="SIZE", right=True),
    Column(title="LICENCE"),
    Column(title="CACHED"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model that has a name, and where its file lies or would lie on this machine."""

    name: str
    size_bytes: int
    licence: str  # SPDX
    is_cached: bool
    path: str


def models_lines(models: Sequence[KnownModel], canvas: Canvas) -> Iterator[str]:
    """A table; a topology names one as `builtin:NAME`."""
    rows = [
        Row(
            cells=(model.name, size(model.size_bytes), model.licence, model.path if model.is_cached else "no")
        )
        for model in models
    ]
    yield from table_lines(COLUMNS, rows, canvas)


def described(model: KnownModel) -> str:
    place = "in the cache" if model.is_cached else "not in the cache"
    return f"{size(model.size_bytes)}, {model.licence}, {place}"
