"""One call that asks a machine for all nodes that it stands for, timed by this machine's clock."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.calls import NodeQuestion, NodeReply
from pdctl.executors.link import NodeLink


def ask_node(link: NodeLink, verb: str, questions: Sequence[NodeQuestion]) -> list[NodeReply]:
    """A machine that answers with a fault, one without Python for example, must not hide the others."""
    request = {"nodes": [dict(question.content) for question in questions]}
    timeout_s = max(question.timeout_s for question in questions)
    try:
        root = link.root()  # before the clock is read: it may be a call of its own
        asked_at = time.time()
        answers = link.call(verb, [root], request, timeout_s=timeout_s).objects("answer")
        replied_at = time.time()
    except DiagnosticError as error:
        return [NodeReply(node=question.node, faults=error.diagnostics) for question in questions]
    return [
        NodeReply(node=question.node, content=answer, asked_at=asked_at, replied_at=replied_at)
        for question, answer in zip(questions, answers, strict=True)
    ]
