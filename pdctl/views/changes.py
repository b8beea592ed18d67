"""The change set for people, as Terraform shows it: a sign, what is done to which process where, and why."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.reconcile.model import Change, ChangeSet, FieldChange, Op
from pdctl.views.canvas import Canvas, Style
from pdctl.views.text import printable, wrap

SIGNS = {Op.CREATE: "+", Op.REPLACE: "~", Op.STOP: "-", Op.KEEP: "="}
_STYLES = {Op.CREATE: Style.GOOD, Op.REPLACE: Style.BUSY, Op.STOP: Style.ERROR, Op.KEEP: Style.FAINT}
_DONE = {Op.CREATE: "created", Op.REPLACE: "replaced", Op.STOP: "stopped", Op.KEEP: "kept"}


def changes_lines(name: str, changes: ChangeSet, canvas: Canvas) -> Iterator[str]:
    """A line per process with its cause, the differences of a replaced one below it, then the counts."""
    for change in changes.changes:
        yield from _change_lines(change, canvas)
    if changes.changes:
        yield ""
    yield f"{name}: {changes_summary(changes)}"


def changes_summary(changes: ChangeSet, *, is_done: bool = False) -> str:
    """`1 to create, 1 to replace, 1 to keep`; when done `1 created, 1 replaced, 1 kept`."""
    counts = [
        f"{count} {_DONE[op] if is_done else f'to {op.value}'}" for op in Op if (count := changes.count(op))
    ]
    if not counts:
        return "nothing runs and nothing should"
    return ("nothing to do, " if changes.is_empty else "") + ", ".join(counts)


def changes_value(name: str, changes: ChangeSet) -> dict[str, object]:
    """What `--json` prints of a change set."""
    return {
        "name": name,
        "is_empty": changes.is_empty,
        "counts": {op.value: changes.count(op) for op in Op},
        "changes": changes.changes,
    }


def field_change(change: FieldChange) -> str:
    """`--page-size 16 -> 32`."""
    before, after = (_field_value(change.name, value) for value in (change.before, change.after))
    return f"{printable(change.name)} {before} -> {after}"


def _field_value(name: str, value: str | None) -> str:
    if value is None:
        return "(absent)"
    if value:
        return printable(value)
    return "(set)" if name.startswith("-") else '""'  # a bare flag; an empty variable


def _change_lines(change: Change, canvas: Canvas) -> Iterator[str]:
    head = f"{SIGNS[change.op]} {change.op.value:7} {change.process_id} on {change.node}"
    first, *others = wrap(f"{head}: {printable(change.cause)}", canvas.width, rest="    ")
    yield canvas.paint(first, _STYLES[change.op])
    yield from others
    if any(f"`{field.name}`" not in change.cause for field in change.fields):  # else the cause says it all
        for field in change.fields:
            yield from wrap(field_change(field), canvas.width, first="    ", rest="      ")
