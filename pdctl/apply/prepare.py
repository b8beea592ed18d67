"""Run what a node needs before its processes start, such as the fetch of a model file."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from typing import cast

from pdctl.diagnostics import Diagnostic, DiagnosticError, Excerpt
from pdctl.events import EventSink, Preparing
from pdctl.executors.base import Executor
from pdctl.executors.calls import CommandEnded, NodeCommand, OutputLine
from pdctl.executors.fan_out import at_once
from pdctl.fields import FieldError, Fields
from pdctl.plan.model import ProcessSpec

KEPT_LINES = 15


def prepare_nodes(processes: Sequence[ProcessSpec], executor: Executor, sink: EventSink) -> None:
    """Run each distinct command once per node, nodes at the same time.

    Raises `DiagnosticError` with all that failed.
    """
    needed = dict.fromkeys((process.node, process.prepare) for process in processes if process.prepare)
    commands = [NodeCommand(node=node, argv=argv) for node, argv in needed]
    faults: list[Diagnostic] = []
    for outcome in at_once(lambda command: _run(command, executor, sink), commands):
        match outcome:
            case None:
                pass
            case Diagnostic():
                faults.append(outcome)
            case DiagnosticError():
                faults.extend(outcome.diagnostics)
            case _:
                raise outcome
    if faults:
        raise DiagnosticError(faults)


def _run(command: NodeCommand, executor: Executor, sink: EventSink) -> Diagnostic | None:
    """The command speaks JSON lines: progress, waiting, done, error. Other lines are kept for the report."""
    last_lines: deque[str] = deque(maxlen=KEPT_LINES)
    told: Fields | None = None
    ended = CommandEnded(error="it gave no end")
    with closing(executor.run(command)) as output:
        for item in output:
            if isinstance(item, CommandEnded):
                ended = item
                continue
            said = _said(item)
            if said is None:
                last_lines.append(item.text)
            elif said.values.get("event") == "error":
                told = said
            elif (event := _progress(command, said)) is not None:
                sink.on(event)
    if ended.exit_code == 0:
        return None
    return _failure(command, ended, told, tuple(last_lines))


def _said(line: OutputLine) -> Fields | None:
    if line.is_error or not line.text.startswith("{"):
        return None
    try:
        found: object = json.loads(line.text)
    except ValueError:
        return None
    return Fields("the line", cast("dict[str, object]", found)) if isinstance(found, dict) else None


def _progress(command: NodeCommand, said: Fields) -> Preparing | None:
    try:
        match said.optional_text("event"):
            case "progress":
                return Preparing(
                    node=command.node,
                    text=f"fetching {said.text('name')}",
                    received_bytes=said.optional_integer("received_bytes"),
                    total_bytes=said.optional_integer("total_bytes"),
                )
            case "waiting":
                return Preparing(node=command.node, text="waiting for another fetch of the same file")
            case _:
                return None
    except FieldError:
        return None


def _failure(
    command: NodeCommand, ended: CommandEnded, told: Fields | None, last_lines: tuple[str, ...]
) -> Diagnostic:
    message = told.values.get("message") if told is not None else None
    hint = told.values.get("hint") if told is not None else None
    how = ended.error or (f"signal {ended.signal}" if ended.signal else f"exit code {ended.exit_code}")
    return Diagnostic(
        code="PD604",
        message=message if isinstance(message, str) else f"preparing `{command.node}` failed with {how}",
        notes=(f"`{command.node}` ran `{' '.join(command.argv)}`",),
        help=hint if isinstance(hint, str) else None,
        excerpts=(Excerpt(title="its last lines", lines=last_lines),) if last_lines else (),
    )
