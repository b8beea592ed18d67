from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.cli.completion import complete_codes, complete_deployments, complete_topologies
from pdctl.cli.targets import Target, deployment_of, target_of
from pdctl.cli.usage import UsageFault
from pdctl.diagnostics import DiagnosticError
from pdctl.state.paths import deployments_dir


@pytest.fixture
def two_records(state: Path) -> Path:
    for name in ("alpha", "beta"):
        (deployments_dir(state) / name).mkdir(parents=True)
        (deployments_dir(state) / name / "plan.json").write_text("{}")
    return state


@pytest.mark.parametrize(
    ("name", "words", "target"),
    [
        ("a", ["decode-0"], Target(name="a", ids=("decode-0",))),
        (None, ["a/decode-0", "prefill-0.0"], Target(name="a", ids=("decode-0", "prefill-0.0"))),
        ("a", ["a/decode-0"], Target(name="a", ids=("decode-0",))),
        ("a", [], Target(name="a", ids=())),
    ],
)
def test_ids_may_carry_their_deployment(name: str | None, words: list[str], target: Target) -> None:
    assert target_of(name, words) == target


def test_the_only_deployment_needs_no_name(two_records: Path) -> None:
    (deployments_dir(two_records) / "beta" / "plan.json").unlink()
    (deployments_dir(two_records) / "beta").rmdir()
    assert target_of(None, ["decode-0"]) == Target(name="alpha", ids=("decode-0",))
    assert deployment_of(None) == "alpha"


def test_one_of_two_deployments_must_be_named(two_records: Path) -> None:
    with pytest.raises(UsageFault, match="more than one deployment: `alpha` and `beta`"):
        deployment_of(None)


def test_a_topology_means_its_deployment(state: Path) -> None:
    file = "topologies/laptop_1p1d.yaml"
    with pytest.raises(DiagnosticError) as caught:
        deployment_of(file)
    assert caught.value.diagnostics[0].help == f"`pdctl up {file}` starts it"
    (deployments_dir(state) / "laptop-1p1d").mkdir(parents=True)
    (deployments_dir(state) / "laptop-1p1d" / "plan.json").write_text("{}")
    assert deployment_of(file) == "laptop-1p1d"


def test_deployments_on_record_are_offered(two_records: Path) -> None:
    assert complete_deployments("al") == ["alpha"]
    assert complete_deployments("") == ["alpha", "beta"]


def test_files_are_offered_as_they_were_begun(state: Path) -> None:
    assert "topologies/" in complete_topologies("top")
    assert "./topologies/laptop_1p1d.yaml" in complete_topologies("./topologies/lap")
    assert complete_topologies("no/such/folder/") == []
    assert not any(each.endswith(".md") for each in complete_topologies(""))


def test_codes_are_offered_in_any_case() -> None:
    assert "PD101" in complete_codes("pd1")
