"""The live picture of an operation: events fold into a row per process, rows into lines that fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pdctl.alike import filled, masked
from pdctl.events import (
    Allocated,
    Event,
    Failed,
    LockMoved,
    LockTaken,
    Preparing,
    Queued,
    Ready,
    Started,
    Starting,
    Stopped,
    Stopping,
    Submitted,
    Verified,
    Verifying,
    Waiting,
    Warned,
)
from pdctl.hostlist import fold
from pdctl.views.canvas import Canvas, Style
from pdctl.views.quantities import duration
from pdctl.views.sentences import answer, left_out, preparation, queued, sentence, waited, waits_for
from pdctl.views.text import display_width, pad, printable, shorten

DEFAULT_CELLS = 80
BAR_CELLS = 12
CANARY = "canary"  # the row of the one real request; no process has this id
JOB = "job"  # the row of the job that brings the nodes
_STATE_STYLES = {
    "allocated": Style.GOOD,
    "ready": Style.GOOD,
    "verified": Style.GOOD,
    "stopped": Style.GOOD,
    "failed": Style.ERROR,
}
_STATE_CELLS = max(len(state) for state in (*_STATE_STYLES, "preparing", "verifying", "starting", "stopping"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRow:
    state: str  # one word
    text: str = ""
    fraction: float | None = None  # of a known whole; drawn as a bar
    names: tuple[str, ...] = ()  # in the text, by which alike rows differ

    @property
    def is_settled(self) -> bool:
        return self.state in _STATE_STYLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Rows by process id, node, `job` or `canary`, in the order in which they were first heard of."""

    rows: Mapping[str, BoardRow] = field(default_factory=dict[str, BoardRow])
    notes: tuple[str, ...] = ()


def after(board: Board, event: Event) -> Board:
    """The board once `event` has happened."""
    if isinstance(event, LockTaken | LockMoved | Warned):
        return replace(board, notes=(*board.notes, sentence(event)))
    key, row = _row_of(event)
    return replace(board, rows={**board.rows, key: row})


def board_lines(board: Board, canvas: Canvas, *, max_lines: int) -> Iterator[str]:
    """A line per row, shortened to the width. With too many rows the settled ones fold into one count."""
    # The last cell stays free: some terminals go to the next line when it is filled.
    cells = (canvas.width or DEFAULT_CELLS) - 1
    yield from (shorten(note, cells, canvas.ellipsis) for note in board.notes)
    room = max(1, max_lines - len(board.notes))
    groups = [((key,), row) for key, row in board.rows.items()]
    if len(groups) > room:
        groups = list(_alike(board.rows))
    shown = groups
    if len(groups) > room:
        busy = [group for group in groups if not group[1].is_settled or group[1].state == "failed"]
        shown = busy[: room - 1]
    key_cells = max((display_width(fold(keys)) for keys, _row in shown), default=0)
    for keys, row in shown:
        yield _line(fold(keys), row, canvas, key_cells)
    hidden = len(board.rows) - sum(len(keys) for keys, _row in shown)
    if hidden:
        num_settled = sum(row.is_settled for row in board.rows.values())
        yield f"and {hidden} more; {num_settled} of {len(board.rows)} done"


def _alike(rows: Mapping[str, BoardRow]) -> Iterator[tuple[tuple[str, ...], BoardRow]]:
    """Rows that say the same as one, with all their keys."""
    groups: dict[object, dict[str, BoardRow]] = {}
    for key, row in rows.items():
        likeness = (row.state, row.fraction, len(row.names), masked(row.text, row.names))
        groups.setdefault(likeness, {})[key] = row
    for group in groups.values():
        first = next(iter(group.values()))
        text = filled(masked(first.text, first.names), [row.names for row in group.values()])
        yield tuple(group), replace(first, text=text)


def _line(key: str, row: BoardRow, canvas: Canvas, key_cells: int) -> str:
    head = f"{pad(key, key_cells)}  {pad(row.state, _STATE_CELLS)}"
    if row.fraction is not None:
        head += f"  {_bar(row.fraction, canvas)}"
    whole = shorten(f"{head}  {row.text}".rstrip(), (canvas.width or DEFAULT_CELLS) - 1, canvas.ellipsis)
    before, state, behind = whole.partition(row.state) if row.state in whole[key_cells:] else (whole, "", "")
    return before + canvas.paint(state, _STATE_STYLES.get(row.state, Style.BUSY)) + behind


def _row_of(event: Event) -> tuple[str, BoardRow]:
    match event:
        case Submitted():
            return JOB, BoardRow(state="submitted", text=f"{event.job_id}{left_out(event)}")
        case Queued():
            return JOB, BoardRow(state="queued", text=f"{event.job_id}, {queued(event)}")
        case Allocated():
            return JOB, BoardRow(state="allocated", text=f"{event.job_id}: {fold(event.nodes)}")
        case Preparing():
            return event.node, BoardRow(state="preparing", text=preparation(event), fraction=_fraction(event))
        case Starting():
            text = f"on {event.node}: {printable(event.cause)}"
            return event.process_id, BoardRow(state="starting", text=text, names=(event.node,))
        case Started():
            pid = "" if event.pid is None else f", pid {event.pid}"
            names = (event.node, str(event.pid or ""))
            return event.process_id, BoardRow(state="started", text=f"on {event.node}{pid}", names=names)
        case Waiting():
            return event.process_id, BoardRow(state="waiting", text=f"{waited(event)}: {waits_for(event)}")
        case Ready():
            return event.process_id, BoardRow(state="ready", text=f"after {duration(event.elapsed_s)}")
        case Failed():
            return event.process_id, BoardRow(state="failed", text=printable(event.reason))
        case Stopping():
            text = f"{printable(event.cause)}, grace {duration(event.grace_s)}"
            return event.process_id, BoardRow(state="stopping", text=text)
        case Stopped():
            killed = ", killed" if event.killed else ""
            text = f"after {duration(event.elapsed_s)}{killed}"
            return event.process_id, BoardRow(state="stopped", text=text)
        case Verifying():
            return CANARY, BoardRow(state="verifying", text=event.url)
        case Verified():
            text = f"in {duration(event.elapsed_s)}: {answer(event)}"
            return CANARY, BoardRow(state="verified", text=text)
        case LockTaken() | LockMoved() | Warned():
            raise AssertionError("notes are no rows")


def _fraction(event: Preparing) -> float | None:
    if event.received_bytes is None or not event.total_bytes:
        return None
    return min(1.0, event.received_bytes / event.total_bytes)


def _bar(fraction: float, canvas: Canvas) -> str:
    filled = round(BAR_CELLS * fraction)
    full, empty = ("━", "─") if canvas.unicode else ("#", "-")
    return f"{full * filled}{empty * (BAR_CELLS - filled)} {fraction:4.0%}"
