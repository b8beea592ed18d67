"""Run what a node needs before its processes start, such as the fetch of a model file."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import cast

from pdctl.diagnostics import Diagnostic, DiagnosticError, Excerpt
from pdctl.events import EventSink, Preparing
from pdctl.executors.base import Executor
from pdctl.executors.calls import CommandEnded, NodeCommand, OutputLine
from pdctl.executors.fan_out import at_once
from pdctl.fields import FieldError, Fields
from pdctl.hostlist import fold
from pdctl.plan.model import ProcessSpec

KEPT_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """How a command failed; on many nodes it often is the same, and told once."""

    argv: tuple[str, ...]
    message: str | None  # in the command's own words
    hint: str | None
    how: str
    last_lines: tuple[str, ...]


def prepare_nodes(processes: Sequence[ProcessSpec], executor: Executor, sink: EventSink) -> None:
    """Run each distinct command once per node, nodes at the same time.

    In the environment of the process that needs it, which may say where things lie. Raises
    `DiagnosticError` with all that failed.
    """
    commands: list[NodeCommand] = []
    for process in processes:
        command = NodeCommand(node=process.node, argv=process.prepare, env=process.env)
        if process.prepare and command not in commands:
            commands.append(command)
    nodes_of: dict[_Failure, list[str]] = {}
    faults: list[Diagnostic] = []
    outcomes = at_once(lambda command: _run(command, executor, sink), commands)
    for command, outcome in zip(commands, outcomes, strict=True):
        match outcome:
            case None:
                pass
            case _Failure():
                nodes_of.setdefault(outcome, []).append(command.node)
            case DiagnosticError():
                faults.extend(outcome.diagnostics)
            case _:
                raise outcome
    faults += [_told(failure, nodes) for failure, nodes in nodes_of.items()]
    if faults:
        raise DiagnosticError(faults)


def _run(command: NodeCommand, executor: Executor, sink: EventSink) -> _Failure | None:
    """The command speaks JSON lines: progress, waiting, done, error. Other lines are kept for the report."""
    last_lines: deque[str] = deque(maxlen=KEPT_LINES)
    error: Fields | None = None
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
                error = said
            elif (event := _progress(command, said)) is not None:
                sink.on(event)
    if ended.exit_code == 0:
        return None
    message, hint = (None if error is None else error.values.get(name) for name in ("message", "hint"))
    return _Failure(
        argv=command.argv,
        message=message if isinstance(message, str) else None,
        hint=hint if isinstance(hint, str) else None,
        how=ended.error or (f"signal {ended.signal}" if ended.signal else f"exit code {ended.exit_code}"),
        last_lines=tuple(last_lines),
    )


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


def _told(failure: _Failure, nodes: Sequence[str]) -> Diagnostic:
    where = fold(nodes)
    return Diagnostic(
        code="PD604",
        message=failure.message or f"preparing {where} failed with {failure.how}",
        notes=(f"{where} ran `{' '.join(failure.argv)}`",),
        help=failure.hint,
        excerpts=(Excerpt(title="its last lines", lines=failure.last_lines),) if failure.last_lines else (),
    )
