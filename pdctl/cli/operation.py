"""How `up` and `restart` end on the screen, and what an interrupted operation leaves."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import typer

from pdctl.cli.output import Output
from pdctl.cli.signals import exit_code, tell_interrupt
from pdctl.lifecycle.interrupt import Interrupted
from pdctl.lifecycle.make_true import UpOutcome
from pdctl.views.changes import changes_summary, changes_value
from pdctl.views.outcome import interrupted_lines, restart_lines, up_lines
from pdctl.views.quantities import duration


def show_up(output: Output, outcome: UpOutcome) -> None:
    """How `up` ended, with a first request to paste."""
    _say_changes(output, outcome)
    output.show(_value(outcome), up_lines(outcome.status, output.out))


def show_restart(output: Output, outcome: UpOutcome) -> None:
    _say_changes(output, outcome)
    output.show(_value(outcome), restart_lines(outcome.status, outcome.left_out, output.out))


def _value(outcome: UpOutcome) -> dict[str, object]:
    """What `--json` prints: the changes as `diff` tells them, and what stands now."""
    changes = changes_value(outcome.status.name, outcome.changes)
    return {
        **changes,
        "elapsed_s": outcome.elapsed_s,
        "left_out": outcome.left_out,
        "status": outcome.status,
    }


def _say_changes(output: Output, outcome: UpOutcome) -> None:
    """What was done goes to stderr, what stands now to stdout."""
    if outcome.awaits is not None:
        output.say([f"{outcome.status.name}: {outcome.awaits}", ""])
        return
    took = "" if outcome.changes.is_empty else f" (took {duration(outcome.elapsed_s)})"
    output.say([f"{outcome.status.name}: {changes_summary(outcome.changes, is_done=True)}{took}", ""])


@contextmanager
def telling_interrupts(output: Output, *, again: str) -> Generator[None]:
    """After Ctrl-C, TERM or HUP, say what still runs and how to go on; `again` is the command that would."""
    try:
        yield
    except Interrupted as interrupted:
        output.tell(
            {"interrupted": {"deployment": interrupted.name, "running": interrupted.running}},
            interrupted_lines(interrupted.name, interrupted.running, again, output.err),
        )
        raise typer.Exit(exit_code(interrupted.signal_number)) from None
    except KeyboardInterrupt as interrupt:  # before the act, which takes its own
        raise typer.Exit(
            tell_interrupt(interrupt, words="interrupted: nothing was started or stopped")
        ) from None
