"""The output of processes, merged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from pdctl.executors.calls import LogLine, LogNotice, LogQuery
from pdctl.lifecycle.access import open_deployment
from pdctl.lifecycle.targets import processes_of

__all__ = ["LogLine", "LogNotice", "logs"]


def logs(name: str, ids: tuple[str, ...], *, tail: int, follow: bool) -> Iterator[LogLine | LogNotice]:
    """The last `tail` lines of each process, then, with `follow`, what they write until the caller stops."""
    deployment = open_deployment(name)
    plan = deployment.require_plan()
    wanted = set(processes_of(plan, ids))
    node_of = {process.id: process.node for process in plan.processes if process.id in wanted}
    query = LogQuery(deployment=name, node_of=node_of, tail=tail, follow=follow)
    with closing(deployment.executor.logs(query)) as stream:
        yield from stream
