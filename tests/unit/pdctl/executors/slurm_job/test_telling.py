"""What a steward tells arrives as it was said."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest

from pdctl import events
from pdctl.diagnostics import Diagnostic, Excerpt, Severity, Span
from pdctl.executors.slurm_job.telling import diagnostic_from, diagnostic_json, event_from, event_json
from pdctl.fields import FieldError, Fields

SAMPLES: dict[Any, Any] = {
    str: "text",
    int: 7,
    float: 2.5,
    bool: True,
    str | None: None,
    int | None: 3,
    float | None: None,
    tuple[str, ...]: ("a", "b"),
}
KINDS = get_args(events.Event)


def carried(value: dict[str, object]) -> Fields:
    return Fields("what came", json.loads(json.dumps(value)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_event_arrives_as_it_was(kind: Any):
    types = get_type_hints(kind)
    event = kind(**{each.name: SAMPLES[types[each.name]] for each in fields(kind)})
    assert event_from(carried(event_json(event))) == event


def test_a_deadline_that_never_comes_stays_one():
    event = events.Waiting(process_id="p", reason="r", elapsed_s=1.0, deadline_s=float("inf"), last_line=None)
    assert event_from(carried(event_json(event))) == event


@pytest.mark.parametrize(
    "value",
    [{"event": "Sung"}, {"event": "Ready", "process_id": "p"}, {"event": "Ready", "process_id": 3}, {}],
    ids=["of a later version", "with too little", "of another form", "none at all"],
)
def test_what_is_no_event_here_is_left_out(value: dict[str, object]):
    assert event_from(carried(value)) is None


def test_a_diagnostic_arrives_with_its_place_and_excerpts():
    diagnostic = Diagnostic(
        code="PD602",
        message="it ended",
        severity=Severity.WARNING,
        span=Span(file="t.yaml", line=3, column=1, length=4, text="name: x"),
        label="here",
        path="name",
        notes=("one", "two"),
        help="mend it",
        excerpts=(Excerpt(title="last lines", lines=("a", "b")),),
    )
    assert diagnostic_from(carried(diagnostic_json(diagnostic))) == diagnostic


def test_what_is_no_diagnostic_is_refused():
    with pytest.raises(FieldError):
        diagnostic_from(carried({"code": "PD602"}))
