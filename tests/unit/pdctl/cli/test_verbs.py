"""Verbs that change nothing, on the topologies that ship with pdctl."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import pdctl as package
from pdctl.explain import codes
from pdctl.resources import resource_path

Pdctl = Callable[..., Any]
LAPTOP = "topologies/laptop_1p1d.yaml"
BROKEN = """schema: pdctl/v1
name: broken
model: {path: m}
engine: {kind: reference}
prefill: {instancs: 1}
decode: {}
"""


@pytest.fixture
def broken(tmp_path: Path) -> str:
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    return str(path)


def test_a_valid_topology_is_told_with_its_size(pdctl: Pdctl) -> None:
    ran = pdctl("validate", LAPTOP)
    assert ran.out == f"{LAPTOP} is valid: 3 processes of 3 instances on 1 node\n"
    assert (ran.code, ran.err) == (0, "")


def test_faults_go_to_stderr_with_the_place_and_a_summary(pdctl: Pdctl, broken: str) -> None:
    ran = pdctl("validate", broken)
    assert (ran.code, ran.out) == (1, "")
    assert f"--> {broken}:5:" in ran.err
    assert ran.err.splitlines()[-1].endswith(f" in {broken}")


def test_faults_as_json_are_the_result_of_validate(pdctl: Pdctl, broken: str) -> None:
    ran = pdctl("validate", broken, "--json")
    verdict = json.loads(ran.out)
    assert (ran.code, ran.err, verdict["is_valid"]) == (1, "", False)
    assert verdict["diagnostics"][0]["span"]["line"] == 5


def test_several_files_are_judged_each(pdctl: Pdctl, broken: str) -> None:
    ran = pdctl("validate", broken, LAPTOP)
    assert ran.code == 1
    assert ran.out.startswith(f"{LAPTOP} is valid: ")
    assert ran.err.splitlines()[-1].endswith(f" in {broken}")
    assert pdctl("validate", LAPTOP, LAPTOP).code == 0


def test_faults_as_json_of_other_verbs_are_a_line_on_stderr(pdctl: Pdctl, broken: str) -> None:
    ran = pdctl("plan", broken, "--json")
    assert (ran.code, ran.out) == (1, "")
    (line,) = ran.err.splitlines()
    assert json.loads(line)["diagnostics"]


def test_a_plan_is_the_same_for_people_and_programs(pdctl: Pdctl) -> None:
    plan = json.loads(pdctl("plan", LAPTOP, "--json").out)
    text = pdctl("plan", LAPTOP).out
    assert [each["id"] for each in plan["processes"]] == ["prefill-0.0", "decode-0.0", "router-0.0"]
    for process in plan["processes"]:
        assert all(word in text for word in [process["id"], *process["argv"]])


def test_one_process_of_a_plan_is_named_by_itself_or_its_instance(pdctl: Pdctl) -> None:
    ran = pdctl("plan", LAPTOP, "--process", "decode-0")
    assert ran.out == pdctl("plan", LAPTOP, "--process", "decode-0.0").out
    assert "--disaggregation-mode decode" in ran.out
    assert json.loads(pdctl("plan", LAPTOP, "--process", "decode-0", "--json").out)["id"] == "decode-0.0"


def test_an_unknown_process_is_a_diagnostic_with_the_nearest_one(pdctl: Pdctl) -> None:
    ran = pdctl("plan", LAPTOP, "--process", "decode-9")
    assert ran.code == 1
    assert "did you mean `decode-0`?" in ran.err


@pytest.mark.parametrize("verb", ["plan", "diff"])
def test_pending_changes_are_exit_code_2_on_demand(pdctl: Pdctl, verb: str) -> None:
    assert pdctl(verb, LAPTOP).code == 0
    assert pdctl(verb, LAPTOP, "--exit-code").code == 2


def test_a_dry_run_is_a_diff(pdctl: Pdctl) -> None:
    dry, diff = pdctl("up", LAPTOP, "--dry-run"), pdctl("diff", LAPTOP)
    assert dry == diff
    assert diff.out.splitlines()[-1] == "laptop-1p1d: 3 to create"


def test_a_diff_as_json_counts_each_operation(pdctl: Pdctl) -> None:
    value = json.loads(pdctl("diff", LAPTOP, "--set", "decode.instances=2", "--json").out)
    assert value["counts"] == {"create": 4, "replace": 0, "stop": 0, "keep": 0}
    assert (value["name"], value["is_empty"]) == ("laptop-1p1d", False)


@pytest.mark.parametrize(
    "word", ["laptop_1p1d", "laptop-1p1d", "laptop_1p1d.yaml", "elsewhere/laptop_1p1d.yaml"]
)
def test_a_shipped_topology_named_without_its_folder_is_found(pdctl: Pdctl, word: str) -> None:
    ran = pdctl("up", word)
    assert ran.code == 1
    assert f"hint: pdctl ships a topology of this name: `{LAPTOP}`" in ran.err


def test_status_without_deployments_says_how_to_start_one(pdctl: Pdctl) -> None:
    ran = pdctl("status")
    assert ran.code == 0
    assert "`pdctl up FILE` starts one" in ran.out
    assert json.loads(pdctl("status", "--json").out) == {"deployments": []}


@pytest.mark.parametrize(
    "words", [("status", "nope"), ("logs", "-n", "nope"), ("restart", "nope/decode-0"), ("down", "nope")]
)
def test_an_unknown_deployment_is_a_diagnostic(pdctl: Pdctl, words: tuple[str, ...]) -> None:
    ran = pdctl(*words)
    assert ran.code == 1
    assert ran.err.startswith("error[PD608]: ")


def test_a_code_is_explained_and_all_are_listed(pdctl: Pdctl) -> None:
    assert [line.split()[0] for line in pdctl("explain").out.splitlines() if line.startswith("PD")] == list(
        codes()
    )
    assert pdctl("explain", "pd101").out.startswith("PD101: ")
    assert pdctl("explain", "PD000").code == 1


@pytest.mark.parametrize("document", ["topology", "plan", "flag-table"])
def test_a_schema_is_printed_as_it_ships(pdctl: Pdctl, document: str) -> None:
    ran = pdctl("schema", document)
    assert ran.out == resource_path("schemas", f"{document}.schema.json").read_text()


def test_the_schema_of_a_site_profile_is_printed_with_the_keys_of_the_topology(pdctl: Pdctl) -> None:
    schema = json.loads(pdctl("schema", "site").out)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    validator.validate({"schema": "pdctl-site/v1", "defaults": {"partition": "gpu"}, "refuses": ["segment"]})
    assert not validator.is_valid({"schema": "pdctl-site/v1", "defaults": {"job_name": "mine"}})


def test_every_name_that_a_topology_can_use_is_listed(pdctl: Pdctl) -> None:
    entries = json.loads(pdctl("list", "--json").out)
    names = {(each["kind"], each["name"]) for each in entries}
    assert {
        ("topologies", LAPTOP),
        ("engines", "reference"),
        ("routers", "mini_lb"),
        ("executors", "local"),
        ("backends", "tcp"),
        ("models", "builtin:smollm2-135m-instruct"),
    } <= names
    assert {kind for kind, _name in names if kind != "routers"} == {
        *("topologies", "engines", "executors", "backends", "models")
    }


def test_one_kind_is_listed_alone(pdctl: Pdctl) -> None:
    assert {each["kind"] for each in json.loads(pdctl("list", "routers", "--json").out)} == {"routers"}


def test_the_version_is_printed_by_verb_and_by_option(pdctl: Pdctl) -> None:
    assert pdctl("version").out == pdctl("--version").out == f"pdctl {package.__version__}\n"
    assert json.loads(pdctl("version", "--json").out)["pdctl"] == package.__version__


def test_models_are_listed_with_their_cache(
    pdctl: Pdctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PDCTL_CACHE_DIR", str(tmp_path))
    (model,) = json.loads(pdctl("models", "list", "--json").out)
    assert (model["name"], model["is_cached"]) == ("smollm2-135m-instruct", False)
    assert "smollm2-135m-instruct  94 MiB  Apache-2.0  no" in pdctl("models", "list").out


def test_an_unknown_model_is_a_diagnostic_in_the_runtimes_own_words(pdctl: Pdctl) -> None:
    ran = pdctl("models", "pull", "smollm2")
    assert ran.code == 1
    assert ran.err.startswith("error[PD604]: no built-in model is called `smollm2`")


def test_quiet_keeps_errors(pdctl: Pdctl, broken: str) -> None:
    assert pdctl("--quiet", "validate", broken).err != ""


@pytest.mark.parametrize("verb", [("history",), ("lock", "show")])
@pytest.mark.parametrize(("word", "code"), [("no^name", "PD608"), ("nowhere", "PD608"), ("no.yaml", "PD101")])
def test_what_is_no_deployment_has_no_history_and_no_lock(
    pdctl: Pdctl, verb: tuple[str, ...], word: str, code: str
) -> None:
    ran = pdctl(*verb, word)
    assert ran.code == 1
    assert ran.err.startswith(f"error[{code}]")


@pytest.mark.parametrize("verb", ["validate", "plan", "diff", "render", "up"])
def test_every_verb_that_plans_can_rehearse(pdctl: Pdctl, verb: str) -> None:
    words = ["--dry-run"] if verb == "up" else []
    ran = pdctl(verb, "topologies/hetero_tp4_dp4.yaml", "--engine", "reference", *words)
    assert ran.code == 0
    assert ran.err.startswith("warning[PD381]: this is a rehearsal of `hetero-tp4-dp4`")
    assert verb == "validate" or "hetero-tp4-dp4-rehearsal" in ran.out


def test_another_engine_can_not_rehearse(pdctl: Pdctl) -> None:
    ran = pdctl("plan", LAPTOP, "--engine", "sglang")
    assert ran.code != 0
    assert "reference" in ran.err
