"""Nodes that are remembered as bad, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.executors.slurm_job.bad_nodes import BadNode
from pdctl.views.canvas import Canvas
from pdctl.views.columns import NOTHING, Column, Row, table_lines
from pdctl.views.quantities import duration
from pdctl.views.text import printable

COLUMNS = (
    Column(title="NODE"),
    Column(title="TIMES", right=True),
    Column(title="SEEN"),
    Column(title="FOR"),
    Column(title="DEPLOYMENT"),
    Column(title="EVIDENCE"),
)


def nodes_lines(nodes: Sequence[BadNode], now: float, canvas: Canvas) -> Iterator[str]:
    """`SEEN` is how long ago, `FOR` how long the node is left out from now on."""
    if not nodes:
        yield "no node is remembered as bad"
        return
    yield from table_lines(COLUMNS, [_row(node, now) for node in nodes], canvas)


def _row(node: BadNode, now: float) -> Row:
    where = NOTHING if node.deployment is None else node.deployment
    job = "" if node.job_id is None else f", job {node.job_id}"
    return Row(
        cells=(
            node.name,
            str(node.num_times),
            f"{duration(now - node.seen_at)} ago",
            duration(node.expires_at - now),
            f"{where}{job}",
            printable(node.why),
        )
    )
