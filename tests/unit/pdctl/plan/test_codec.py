"""The plan's JSON form."""

from __future__ import annotations

import json

import jsonschema
import pytest

from pdctl.compiler import compile_plan
from pdctl.fields import FieldError
from pdctl.plan.codec import plan_from_json, plan_to_json
from pdctl.resources import resource_path


@pytest.fixture
def plan(make_topology, make_inventory, reference_programs):
    topology = make_topology(prefill={"instances": 2}, decode={"env": {"A": "1"}})
    return compile_plan(topology, make_inventory(2), reference_programs)


def test_a_plan_survives_the_way_through_json(plan):
    assert plan_from_json(json.dumps(plan_to_json(plan)).encode()) == plan


def test_the_json_form_keeps_to_its_schema(plan):
    schema = json.loads(resource_path("schemas", "plan.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(plan_to_json(plan), schema, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "the plan has format 2, this version reads 1"),
        ({"name": 7}, "`name` of the plan is 7"),
        ({"processes": None}, "`processes` of the plan is None"),
    ],
)
def test_a_damaged_plan_is_refused(plan, change, message):
    with pytest.raises(FieldError, match=message):
        plan_from_json(json.dumps({**plan_to_json(plan), **change}).encode())
