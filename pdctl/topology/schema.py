"""Check a document against `schemas/topology.schema.json`: jsonschema finds, `schema_faults` says."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from pdctl.diagnostics import Diagnostic
from pdctl.resources import resource_path
from pdctl.topology.schema_faults import FaultReport
from pdctl.topology.tree import Flat

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

SCHEMA_FILE = "topology.schema.json"


@cache
def topology_schema() -> dict[str, Any]:
    return json.loads(resource_path("schemas", SCHEMA_FILE).read_text(encoding="utf-8"))


def check_schema(flat: Flat, *, partial: bool = False) -> tuple[Diagnostic, ...]:
    """Every fault of the document. `partial` lets keys be absent, as they are in a profile."""
    report = FaultReport(schema=topology_schema(), source=flat.source, partial=partial)
    validator: Any = _validator()  # typed here: the stubs of `iter_errors` have holes
    for error in validator.iter_errors(flat.value):
        report.add(error)
    return report.diagnostics()


@cache
def _validator() -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # a tenth of a second that `--help` shouldn't pay

    return Draft202012Validator(topology_schema())
