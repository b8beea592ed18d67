"""What is asked of a deputy and what comes of it, as JSON and back. Raises `FieldError` for anything else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import isinf
from typing import TypeVar

from pdctl.apply.verify import Verify
from pdctl.fields import FieldError, Fields
from pdctl.lifecycle.make_true import UpOptions, UpOutcome
from pdctl.lifecycle.take_down import DownOutcome
from pdctl.reconcile.model import Change, ChangeSet, FieldChange, Op
from pdctl.state.pending import pending_from_fields

Word = TypeVar("Word", Op, Verify)


def options_json(options: UpOptions) -> dict[str, object]:
    return {
        "canary": options.canary,
        "verify": options.verify.value,
        "doctor": options.doctor,
        "deadline_s": None if options.deadline_s is None or isinf(options.deadline_s) else options.deadline_s,
    }


def options_from(values: Mapping[str, object]) -> UpOptions:
    """A deputy always waits: it has nothing else to do."""
    found = Fields("the options", values)
    return UpOptions(
        wait=True,
        canary=found.flag("canary"),
        verify=_one_of(Verify, found.text("verify")),
        doctor=found.flag("doctor"),
        deadline_s=found.optional_number("deadline_s"),
    )


def up_json(outcome: UpOutcome) -> dict[str, object]:
    """Without the status, which whoever asked looks at afresh."""
    return {
        "changes": [asdict(change) for change in outcome.changes.changes],
        "elapsed_s": outcome.elapsed_s,
        "left_out": list(outcome.left_out),
    }


def changes_from(found: Fields) -> ChangeSet:
    return ChangeSet(changes=tuple(_change_from(each) for each in found.objects("changes")))


def down_json(outcome: DownOutcome) -> dict[str, object]:
    return asdict(outcome)


def down_from(found: Fields) -> DownOutcome:
    return DownOutcome(
        stopped=found.texts("stopped"),
        leftovers=found.texts("leftovers"),
        pending=pending_from_fields(found.objects("pending")),
        unproven=found.texts("unproven"),
        elapsed_s=found.number("elapsed_s"),
    )


def _change_from(found: Fields) -> Change:
    return Change(
        op=_one_of(Op, found.text("op")),
        process_id=found.text("process_id"),
        node=found.text("node"),
        cause=found.text("cause"),
        fields=tuple(
            FieldChange(
                name=each.text("name"),
                before=each.optional_text("before"),
                after=each.optional_text("after"),
            )
            for each in found.objects("fields")
        ),
    )


def _one_of(kind: type[Word], text: str) -> Word:
    try:
        return kind(text)
    except ValueError as error:
        raise FieldError(str(error)) from error
