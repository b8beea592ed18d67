"""The end of what processes have written."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from pdctl.executors.base import NodeAccess
from pdctl.executors.calls import LogQuery


def last_lines(
    nodes: NodeAccess, deployment: str, node_of: Mapping[str, str], *, num_lines: int
) -> Mapping[str, tuple[str, ...]]:
    """Up to `num_lines` lines of each process in `node_of` (process id to node), oldest first."""
    query = LogQuery(deployment=deployment, node_of=node_of, tail=num_lines)
    lines: dict[str, list[str]] = {process_id: [] for process_id in node_of}
    with closing(nodes.logs(query)) as stream:
        for line in stream:
            lines[line.process_id].append(line.text)
    return {process_id: tuple(texts) for process_id, texts in lines.items()}
