"""The plan in force on several nodes, so that a dead first node loses nothing; the newest one wins."""

from __future__ import annotations

from collections.abc import Sequence

from pdctl.executors.link import NodeLink
from pdctl.executors.shell import UnreachableError
from pdctl.fields import Fields
from pdctl.state.pending import PendingNode

NUM_COPIES = 3

Kept = Fields | UnreachableError


def newest(answers: Sequence[Kept]) -> Fields | None:
    """The answer of the node that was told last; None where no node has a plan."""
    found = [answer.object("answer") for answer in answers if isinstance(answer, Fields)]
    with_plan = [each for each in found if each.optional_text("content") is not None]
    return max(with_plan, key=lambda each: each.integer("generation"), default=None)


def ask_kept(link: NodeLink, deployment: str) -> Fields:
    return link.call("kept", [link.root(), deployment])


def keep_on(
    link: NodeLink, deployment: str, content: bytes, *, generation: int, pending: Sequence[PendingNode]
) -> None:
    request = {
        "content": content.decode(),
        "generation": generation,
        "pending": [node.to_json() for node in pending],
    }
    link.call("keep", [link.root(), deployment], request)
