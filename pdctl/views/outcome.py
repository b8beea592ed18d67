"""How an operation ended, for people: what stands now, and the first thing to do with it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence

from pdctl.hostlist import fold
from pdctl.lifecycle.down import DownOutcome
from pdctl.plan.model import Endpoint
from pdctl.state.observed import Phase
from pdctl.status import DeploymentStatus
from pdctl.views.canvas import Canvas, Style
from pdctl.views.diagnostics import hint_lines
from pdctl.views.quantities import counted, duration
from pdctl.views.status import status_lines
from pdctl.views.text import printable

FIRST_QUESTION = "What is the capital of France?"


def up_lines(status: DeploymentStatus, canvas: Canvas) -> Iterator[str]:
    """The table of `status`, then a first request to paste once all is ready."""
    yield from status_lines(status, canvas)
    if status.phase is not Phase.READY:
        yield ""
        yield from hint_lines(f"`pdctl status {status.name}` shows when it is ready", canvas)
    elif status.endpoint is not None and status.served_model is not None:
        yield ""
        yield canvas.paint("Send the first request:", Style.STRONG)
        yield ""
        yield from first_request_lines(status.endpoint, status.served_model)


def restart_lines(status: DeploymentStatus, left_out: Sequence[str], canvas: Canvas) -> Iterator[str]:
    """The table of `status`, then what was not asked for and is missing."""
    yield from status_lines(status, canvas)
    if left_out:
        yield ""
        yield from hint_lines(
            f"{fold(left_out)}: not asked for, so left as it is, and nothing was verified; "
            "`pdctl up FILE` starts what is missing",
            canvas,
        )


def first_request_lines(endpoint: Endpoint, served_model: str) -> Iterator[str]:
    """A command that fits 80 columns and stays correct whatever the model is called."""
    message = json.dumps([{"role": "user", "content": FIRST_QUESTION}])
    # Greedy: the first answer that somebody sees should be the model's best, and the same each time.
    body = f'{{\n    "model": {json.dumps(served_model)}, "temperature": 0,\n    "messages": {message}\n  }}'
    yield f"  curl -s http://{endpoint}/v1/chat/completions \\"
    yield from f"    -H 'Content-Type: application/json' -d {shlex.quote(body)}".splitlines()


def interrupted_lines(name: str, running: Sequence[str] | None, again: str, canvas: Canvas) -> Iterator[str]:
    """What goes on after the end of an act, and the two ways from here."""
    heading = canvas.paint("interrupted:", Style.WARNING)
    if running is None:
        yield f"{heading} what runs of {name} is unknown, `pdctl status {name}` tells"
        return
    if not running:
        yield f"{heading} nothing of {name} runs"
        return
    yield f"{heading} still running: {fold(running)}"
    yield ""
    yield from hint_lines(f"`{again}` goes on from here, `pdctl down {name}` stops all of it", canvas)


def down_lines(name: str, outcome: DownOutcome, canvas: Canvas) -> Iterator[str]:
    """What was stopped, or that nothing ran; and what is left in spite of it."""
    if outcome.stopped:
        processes = counted(len(outcome.stopped), "process", "processes")
        yield f"{name}: stopped {processes} in {duration(outcome.elapsed_s)}"
    else:
        yield f"{name}: nothing was running"
    for leftover in outcome.leftovers:
        yield f"{canvas.paint('left behind:', Style.ERROR)} {printable(leftover)}"
    by_reason: dict[str, list[str]] = {}
    for node in outcome.pending:
        by_reason.setdefault(printable(node.reason), []).append(node.name)
    for reason, names in by_reason.items():
        yield f"{canvas.paint('not reached:', Style.ERROR)} {fold(names)}: {reason}"
    for unproven in outcome.unproven:
        yield f"{canvas.paint('not proven:', Style.WARNING)} {printable(unproven)}"
    if outcome.pending:
        yield ""
        yield from hint_lines(f"`pdctl down {name}` again, once they can be reached, finishes it", canvas)
