"""What runs, for people: a table per deployment, what is wrong with it, and where it answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.hostlist import fold
from pdctl.state.observed import Phase
from pdctl.status import DeploymentStatus, ProcessStatus
from pdctl.views.canvas import Canvas, Style
from pdctl.views.columns import NOTHING, Column, Row, table_lines
from pdctl.views.quantities import duration, size
from pdctl.views.text import printable, wrap

COLUMNS = (
    Column(title="PROCESS"),
    Column(title="NODE"),
    Column(title="PHASE"),
    Column(title="PID", right=True),
    Column(title="PORTS"),
    Column(title="UPTIME", right=True),
    Column(title="MEM", right=True),
    Column(title="REQUESTS", right=True),
)
# Only where a process holds device memory, so that it takes no room on CPUs.
DEVICE_COLUMN = Column(title="DEVICE MEM", right=True)
_PHASE_COLUMN = 2
PHASE_STYLES = {
    Phase.STARTING: Style.BUSY,
    Phase.READY: Style.GOOD,
    Phase.UNREADY: Style.WARNING,
    Phase.EXITED: Style.FAINT,
    Phase.FAILED: Style.ERROR,
    Phase.LOST: Style.ERROR,
    Phase.UNKNOWN: Style.WARNING,
}
NO_DEPLOYMENT = (
    "no deployment on record; `pdctl up FILE` starts one, `pdctl list topologies` shows files to begin with"
)


def statuses_lines(statuses: Sequence[DeploymentStatus], canvas: Canvas) -> Iterator[str]:
    """Every deployment, an empty line between two."""
    if not statuses:
        yield from wrap(NO_DEPLOYMENT, canvas.width)
    for number, status in enumerate(statuses):
        if number:
            yield ""
        yield from status_lines(status, canvas)


def status_lines(status: DeploymentStatus, canvas: Canvas) -> Iterator[str]:
    yield (
        f"{canvas.paint(status.name, Style.STRONG)} ({status.executor}): "
        f"{canvas.paint(status.phase.value, PHASE_STYLES[status.phase])}"
    )
    if status.locked_by:
        yield from wrap(f"locked by {printable(status.locked_by)}", canvas.width, first="  ", rest="    ")
    if all(each.phase is Phase.EXITED for each in status.processes):
        yield "  nothing of it runs"
    else:
        yield from _table(status.processes, canvas)
        yield from _reasons(status.processes, canvas)
    for problem in status.problems:
        yield from wrap(f"problem: {printable(problem)}", canvas.width, rest="  ")
    if status.endpoint is not None and any(each.phase.is_alive for each in status.processes):
        model = f" serves {printable(status.served_model)}" if status.served_model else ""
        yield f"endpoint http://{status.endpoint}{model}"


def _table(processes: Sequence[ProcessStatus], canvas: Canvas) -> Iterator[str]:
    rows = [_row(each) for each in processes]
    if all(each.device_bytes is None for each in processes):
        return table_lines(COLUMNS, rows, canvas)
    told = [NOTHING if each.device_bytes is None else size(each.device_bytes) for each in processes]
    wider = [
        Row(cells=(*row.cells[:-1], cell, row.cells[-1]), styles=row.styles)
        for row, cell in zip(rows, told, strict=True)
    ]
    return table_lines((*COLUMNS[:-1], DEVICE_COLUMN, COLUMNS[-1]), wider, canvas)


def _row(process: ProcessStatus) -> Row:
    return Row(
        cells=(
            process.id,
            process.node,
            process.phase.value,
            NOTHING if process.pid is None else str(process.pid),
            " ".join(str(claim.port) for claim in process.ports) or NOTHING,
            NOTHING if process.uptime_s is None else duration(process.uptime_s),
            NOTHING if process.rss_bytes is None else size(process.rss_bytes),
            NOTHING if process.num_requests is None else str(process.num_requests),
        ),
        styles=((0, Style.STRONG), (_PHASE_COLUMN, PHASE_STYLES[process.phase])),
    )


def _reasons(processes: Sequence[ProcessStatus], canvas: Canvas) -> Iterator[str]:
    """Why processes aren't ready, in full below the table; those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for process in processes:
        told = process.reason or (None if process.exit_code is None else f"exit code {process.exit_code}")
        if told:
            by_reason.setdefault(printable(told), []).append(process.id)
    for reason, ids in by_reason.items():
        yield from wrap(f"{fold(ids)}: {reason}", canvas.width, rest="  ")
