"""Every code about a document has bad documents under `tests/golden/bad`, and each gives what is expected.

`expected.json` has, for each file, what to load it with and what is found: `error PD110 8:3+9` is severity,
code, line, column and width of the marked text, `-` where a diagnostic has no place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pdctl import explain, plugins
from pdctl.compiler import Programs, compile_plan
from pdctl.diagnostics import Diagnostic, DiagnosticError, has_errors
from pdctl.executors.slurm_job.site import settled
from pdctl.inventory import declared
from pdctl.models.resolve import with_facts
from pdctl.rules import check
from pdctl.topology.anchor import anchored
from pdctl.topology.load import load
from pdctl.topology.model import Topology

BAD = Path(__file__).parents[2] / "golden" / "bad"
EXPECTED: dict[str, dict[str, Any]] = json.loads((BAD / "expected.json").read_text(encoding="utf-8"))

# PD102 would be a file of a mebibyte, PD120 is about a word, PD238 and PD239 are about other files, PD381 is
# about an option, PD410, PD411 and PD436 are about live nodes.
WITHOUT_DOCUMENT = {"PD102", "PD120", "PD238", "PD239", "PD381", "PD410", "PD411", "PD436"}

# Codes of executors that a document alone can cause.
OF_EXECUTORS = {"PD513", "PD530", "PD531"}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_bad_document_gives_exactly_its_faults(name: str) -> None:
    case = EXPECTED[name]
    found = diagnose(BAD / name, profile=case.get("profile"), sets=case.get("sets", ()))
    assert [brief(each) for each in found] == case["found"]
    assert name.partition("-")[0] in {each.code for each in found}


def test_every_document_is_expected_and_every_expectation_has_its_document() -> None:
    documents = {path.name for path in BAD.glob("*.yaml")}
    assert documents == set(EXPECTED) - {"PD101-no-such-file.yaml"}


def test_every_code_about_documents_has_a_bad_one() -> None:
    codes = {code for code in explain.codes() if code < "PD500"} | OF_EXECUTORS
    assert codes - WITHOUT_DOCUMENT == {name.partition("-")[0] for name in EXPECTED}


def diagnose(path: Path, *, profile: str | None, sets: list[str]) -> list[Diagnostic]:
    """What `pdctl plan` would find: load, check, and compile what has no error so far."""
    loaded = load(str(path), environ={}, profile=profile, sets=sets)
    found = list(loaded.diagnostics)
    if loaded.topology is not None:
        at_site = settled(anchored(loaded.topology, str(path)), {})
        topology, model_faults = with_facts(at_site.topology)
        found += (*at_site.diagnostics, *model_faults, *check(topology))
        if not has_errors(found):
            found += compile_faults(topology)
    return found


def compile_faults(topology: Topology) -> tuple[Diagnostic, ...]:
    engine = plugins.program("engines", topology.engine.kind)
    router = plugins.program("routers", topology.router.kind)
    assert engine is not None
    assert router is not None
    try:
        compile_plan(topology, declared(topology.cluster), Programs(engine=engine, router=router))
    except DiagnosticError as error:
        return error.diagnostics
    return ()


def brief(diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    place = "-" if span is None else f"{span.line}:{span.column}+{span.length}"
    return f"{diagnostic.severity} {diagnostic.code} {place}"
