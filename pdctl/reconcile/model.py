"""The change set: what must be done now, with the cause of each step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Op(StrEnum):
    CREATE = "create"
    REPLACE = "replace"
    STOP = "stop"
    KEEP = "keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """One difference between what runs and what should run, for people: `--page-size` 16 -> 32."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    op: Op
    process_id: str
    node: str
    cause: str
    fields: tuple[FieldChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    """Changes in the order in which they are applied: stops in reverse start order, then starts."""

    changes: tuple[Change, ...]

    @property
    def is_empty(self) -> bool:
        return all(change.op is Op.KEEP for change in self.changes)

    def of(self, *ops: Op) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.op in ops)

    def count(self, op: Op) -> int:
        return len(self.of(op))
