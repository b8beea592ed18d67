"""Nodes on which a `down` is not finished, because they could not be reached."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pdctl.fields import FieldError, Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingNode:
    """What the next `down` has to go on with."""

    name: str
    reason: str  # why it could not be reached
    since: float  # of the first `down` that missed it, in seconds since the epoch

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def pending_from_fields(entries: tuple[Fields, ...]) -> tuple[PendingNode, ...]:
    """Entries that can't be read are left out: the node itself is asked anyway."""
    nodes: list[PendingNode] = []
    for entry in entries:
        try:
            nodes.append(
                PendingNode(name=entry.text("name"), reason=entry.text("reason"), since=entry.number("since"))
            )
        except FieldError:
            continue
    return tuple(nodes)
