"""What each event says, as one sentence; the plain and the live progress share them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isinf

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
from pdctl.views.quantities import duration, size
from pdctl.views.text import printable, shorten

MAX_TOLD_SINGLY = 4
MAX_LAST_LINE = 160  # cells: engines print all their settings in one line


def sentences(events: Sequence[Event]) -> Iterator[str]:
    """A line for each kind of thing that happened together: `starting prefill-[0-15].0 on n[01-16]: …`.

    A few alike things have a line each, with their pids, whether they were seen together or not.
    """
    groups: dict[object, list[Event]] = {}
    for event in events:
        groups.setdefault(_likeness(event), []).append(event)
    for group in groups.values():
        told = group if len(group) <= MAX_TOLD_SINGLY else [_together(group)]
        yield from map(sentence, told)


def _likeness(event: Event) -> object:
    """Equal for events that one line may tell of."""
    match event:
        case Starting():
            return Starting, event.cause
        case Started():
            return Started
        case Waiting():
            return Waiting, waited(event), event.reason
        case Ready():
            return Ready
        case Failed():
            return Failed, event.reason
        case Stopping():
            return Stopping, event.cause, event.grace_s
        case Stopped():
            return Stopped, event.killed
        case _:
            return event


def _together(events: Sequence[Event]) -> Event:
    """Alike events as one of all their processes: no pids, the longest time, the first one's last words."""
    ids, nodes, longest_s = list[str](), list[str](), 0.0
    for event in events:
        if isinstance(event, Starting | Started | Waiting | Ready | Failed | Stopping | Stopped):
            ids.append(event.process_id)
        if isinstance(event, Starting | Started | Stopping):
            nodes.append(event.node)
        if isinstance(event, Ready | Stopped):
            longest_s = max(longest_s, event.elapsed_s)
    match events[0]:
        case Starting() | Stopping() as first:
            return replace(first, process_id=fold(ids), node=fold(nodes))
        case Started() as first:
            return replace(first, process_id=fold(ids), node=fold(nodes), pid=None)
        case Ready() | Stopped() as first:
            return replace(first, process_id=fold(ids), elapsed_s=longest_s)
        case Waiting() | Failed() as first:
            return replace(first, process_id=fold(ids))
        case first:
            return first


def sentence(event: Event) -> str:
    """One line without colour or width; never empty."""
    match event:
        case Submitted():
            return f"submitted job {event.job_id}{left_out(event)}"
        case Queued():
            return f"job {event.job_id} waits for nodes, {queued(event)}"
        case Allocated():
            return f"job {event.job_id} has its nodes: {fold(event.nodes)}"
        case Preparing():
            return f"preparing {event.node}: {preparation(event)}"
        case Starting():
            return f"starting {event.process_id} on {event.node}: {printable(event.cause)}"
        case Started():
            pid = "" if event.pid is None else f", pid {event.pid}"
            return f"started {event.process_id} on {event.node}{pid}"
        case Waiting():
            return f"waiting for {event.process_id}, {waited(event)}: {waits_for(event)}"
        case Ready():
            return f"ready {event.process_id} after {duration(event.elapsed_s)}"
        case Failed():
            return f"failed {event.process_id}: {printable(event.reason)}"
        case Stopping():
            cause = printable(event.cause)
            return f"stopping {event.process_id} on {event.node}: {cause} (grace {duration(event.grace_s)})"
        case Stopped():
            killed = ", killed" if event.killed else ""
            return f"stopped {event.process_id} after {duration(event.elapsed_s)}{killed}"
        case Verifying():
            return f"verifying with one request to {event.url}"
        case Verified():
            return f"verified in {duration(event.elapsed_s)}, the model answers: {answer(event)}"
        case LockTaken():
            return f"took over the lock of {printable(event.previous)}, who is gone"
        case LockMoved():
            return f"took the lock on another node: {fold(event.instead_of)} can't be reached"
        case Warned():
            return f"warning[{event.code}]: {printable(event.message)}"


def left_out(event: Submitted) -> str:
    """Nodes that the job does without."""
    return f", without {fold(event.without)}, see `pdctl nodes list`" if event.without else ""


def queued(event: Queued) -> str:
    """`12s: Resources, expected to start in 5m`."""
    expected = "" if event.starts_in_s is None else f", expected to start in {duration(event.starts_in_s)}"
    return f"{duration(event.elapsed_s)}: {printable(event.reason)}{expected}"


def answer(event: Verified) -> str:
    """The model's words on one line."""
    return printable(" ".join(event.text.split()))


def waited(event: Waiting) -> str:
    """`12s of 10m`; without a deadline `12s`."""
    if isinf(event.deadline_s):
        return duration(event.elapsed_s)
    return f"{duration(event.elapsed_s)} of {duration(event.deadline_s)}"


def waits_for(event: Waiting) -> str:
    """What the last probe saw, and the process's own last words."""
    last_line = shorten(printable(event.last_line).strip(), MAX_LAST_LINE) if event.last_line else ""
    return printable(event.reason) + (f" | {last_line}" if last_line else "")


def preparation(event: Preparing) -> str:
    """`30 MiB of 98 MiB, fetching NAME`."""
    text = printable(event.text)
    if event.received_bytes is None:
        return text
    of_total = "" if event.total_bytes is None else f" of {size(event.total_bytes)}"
    return f"{size(event.received_bytes)}{of_total}, {text}"
