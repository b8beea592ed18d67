"""What the doctor found, for people: a line per verdict, then every fault in full with its hint."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.doctor.model import DoctorReport, Standing, Verdict
from pdctl.hostlist import fold
from pdctl.views.canvas import Canvas, Style
from pdctl.views.columns import Column, Row, table_lines
from pdctl.views.diagnostics import diagnostic_lines, summary
from pdctl.views.quantities import counted, duration
from pdctl.views.text import printable

COLUMNS = (
    Column(title="CHECK"),
    Column(title="VERDICT"),
    Column(title="NODES"),
    Column(title="FOUND"),
)
_VERDICT_COLUMN = 1
_STYLES = {
    Standing.OK: Style.GOOD,
    Standing.WARNING: Style.WARNING,
    Standing.ERROR: Style.ERROR,
    Standing.SKIPPED: Style.FAINT,
}


def doctor_value(report: DoctorReport) -> dict[str, object]:
    """What `--json` prints."""
    return {
        "deployment": report.deployment,
        "is_fit": not report.has_errors,
        "elapsed_s": report.elapsed_s,
        "nodes": report.nodes,
        "verdicts": report.verdicts,
    }


def doctor_lines(report: DoctorReport, canvas: Canvas) -> Iterator[str]:
    yield from table_lines(COLUMNS, [_row(verdict) for verdict in report.verdicts], canvas)
    faults = [verdict.diagnostic() for verdict in report.faults]
    for fault in faults:
        yield ""
        yield from diagnostic_lines(fault, canvas)
    yield ""
    found = summary(faults) if faults else "all is well"
    nodes = counted(len(report.nodes), "node")
    yield f"{report.deployment}: {found} on {nodes} (took {duration(report.elapsed_s)})"


def _row(verdict: Verdict) -> Row:
    """A fault stands in full below the table; its line has the code, to find it by."""
    return Row(
        cells=(
            verdict.check,
            verdict.standing.value,
            fold(verdict.nodes),
            verdict.code if verdict.is_fault and verdict.code else printable(verdict.text),
        ),
        styles=((0, Style.STRONG), (_VERDICT_COLUMN, _STYLES[verdict.standing])),
    )
