"""Who did what to deployments, for people: a line per act, what it changed below it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from pdctl.lifecycle.history import Act
from pdctl.views.canvas import Canvas, Style
from pdctl.views.text import printable, wrap

_OUTCOME_STYLES = {"done": Style.GOOD, "failed": Style.ERROR, "unfinished": Style.ERROR}


def history_lines(acts: Sequence[Act], canvas: Canvas) -> Iterator[str]:
    """Oldest first, so that the latest act stands right above the prompt."""
    if not acts:
        yield "no act is on record"
    for act in acts:
        entry = act.entry
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.at))
        outcome = f"  {entry.outcome}  "
        painted = f"  {canvas.paint(entry.outcome, _OUTCOME_STYLES.get(entry.outcome, Style.WARNING))}  "
        line = f"{at}  {act.deployment}  {entry.verb}{outcome}by {printable(entry.who)}"
        for each in wrap(line, canvas.width, rest="    "):
            yield each.replace(outcome, painted, 1)
        for told in (*entry.changes, *filter(None, (entry.detail,))):
            yield from wrap(printable(told), canvas.width, first="    ", rest="      ")
