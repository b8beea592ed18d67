"""Acts and their outcomes arrive at the other end as they were."""

from __future__ import annotations

import json

import pytest

from pdctl.apply.verify import Verify
from pdctl.fields import FieldError, Fields
from pdctl.lifecycle.acts_json import changes_from, down_from, down_json, options_from, options_json
from pdctl.lifecycle.make_true import UpOptions
from pdctl.lifecycle.take_down import DownOutcome
from pdctl.state.pending import PendingNode


def carried(value: object) -> Fields:
    return Fields("what came", json.loads(json.dumps(value)))


@pytest.mark.parametrize(
    "options",
    [
        UpOptions(),
        UpOptions(canary=False, verify=Verify.PAIRS, doctor=False, deadline_s=12.5),
    ],
)
def test_options(options: UpOptions):
    assert options_from(carried(options_json(options)).values) == options


def test_a_deputy_always_waits():
    assert options_from(options_json(UpOptions(wait=False))).wait


def test_the_outcome_of_a_down():
    outcome = DownOutcome(
        stopped=("router-0.0",),
        leftovers=("port 8000",),
        pending=(PendingNode(name="n1", reason="no route", since=1.5),),
        unproven=("device memory",),
        elapsed_s=2.5,
    )
    assert down_from(carried(down_json(outcome))) == outcome


def test_changes_with_their_causes():
    change = {
        "op": "replace",
        "process_id": "decode-0.0",
        "node": "n1",
        "cause": "--page-size 16 -> 32",
        "fields": [{"name": "--page-size", "before": "16", "after": None}],
    }
    (found,) = changes_from(carried({"changes": [change]})).changes
    assert (found.op.value, found.process_id, found.fields[0].before) == ("replace", "decode-0.0", "16")


@pytest.mark.parametrize(
    "value", [{}, {"changes": [{"op": "dance", "process_id": "p", "node": "n", "cause": "c", "fields": []}]}]
)
def test_anything_else_is_refused(value: dict[str, object]):
    with pytest.raises(FieldError):
        changes_from(carried(value))
