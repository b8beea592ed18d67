"""The tables that ship, and a user's own."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.flagtable.codec import table_text
from pdctl.flagtable.model import Flag, FlagTable
from pdctl.flagtable.shelf import (
    OWN_TABLES,
    choose_table,
    history,
    keep,
    known_versions,
    load_flag_table,
    load_history,
)
from pdctl.resources import resource_path

SHIPPED = [
    (program, version)
    for program, versions in {
        "sglang": ("0.5.9", "0.5.12.post1", "0.5.17", "0.5.20", "0.5.23"),
        "sglang_router": ("0.3.2",),
    }.items()
    for version in versions
]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own."""
    monkeypatch.setenv(OWN_TABLES, str(tmp_path))
    return tmp_path


def table_of(program: str, version: str) -> FlagTable:
    table = load_flag_table(program, version)
    assert table is not None
    return table


@pytest.mark.parametrize(("program", "version"), SHIPPED)
def test_a_shipped_table_follows_its_schema_and_is_written_as_inspect_writes_it(
    program: str, version: str
) -> None:
    text = resource_path("schemas", program, f"{version}.json").read_text(encoding="utf-8")
    schema = json.loads(resource_path("schemas", "flag-table.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(text), schema)
    table = table_of(program, version)
    assert (table.program, table.version) == (program, version)
    assert table_text(table) == text


@pytest.mark.parametrize(("program", "version"), SHIPPED)
def test_the_history_agrees_with_every_shipped_table(program: str, version: str) -> None:
    past = load_history(program)
    place = past.sampled.index(version)
    alive = {
        name
        for name, (first, last) in past.spans.items()
        if past.sampled.index(first) <= place <= past.sampled.index(last)
    }
    assert alive - set(table_of(program, version).by_spelling) == set()
    assert set(table_of(program, version).by_spelling) - alive == set()


def test_the_versions_with_a_table_are_known_in_order() -> None:
    assert known_versions("sglang") == ("0.5.9", "0.5.12.post1", "0.5.17", "0.5.20", "0.5.23")
    assert known_versions("reference") == ()


@pytest.mark.parametrize(
    ("version", "chosen", "is_exact"),
    [
        ("0.5.20", "0.5.20", True),
        ("0.5.21", "0.5.20", False),
        ("9.9", "0.5.23", False),
        ("0.4", "0.5.9", False),
        (None, "0.5.23", False),
        ("../sglang/0.5.9", "0.5.23", False),
    ],
)
def test_a_version_without_a_table_takes_the_nearest_lower_one(
    version: str | None, chosen: str, is_exact: bool
) -> None:
    found = choose_table("sglang", version)
    assert found is not None
    assert (found.table.version, found.is_exact) == (chosen, is_exact)


def test_a_program_without_tables_has_none() -> None:
    assert choose_table("reference", "1.0") is None


def test_history_tells_first_and_last_version_of_a_spelling() -> None:
    assert history("sglang", "enable-deepep-moe") == ("0.4.8", "0.5.3")
    assert history("sglang", "attn-dp-size") == ("0.5.22", "0.5.23")
    assert history("sglang", "never-was") is None


def test_a_table_that_is_kept_is_found_and_wins(own: Path) -> None:
    path = keep(FlagTable.of("sglang", "0.5.23", [Flag(name="mine")]), own)
    assert path == own / "sglang" / "0.5.23.json"
    assert [flag.name for flag in table_of("sglang", "0.5.23").flags] == ["mine"]
    keep(FlagTable.of("sglang", "0.5.21+fork", [Flag(name="other")]), own)
    assert known_versions("sglang")[-2:] == ("0.5.21+fork", "0.5.23")
    assert '"sampled": ["0.5.21+fork", "0.5.23"]' in (own / "sglang" / "history.json").read_text()


def test_tables_of_an_engine_outside_pdctl_are_found_too(own: Path) -> None:
    keep(FlagTable.of("my_engine", "1", [Flag(name="mine")]), own)
    assert choose_table("my_engine", "1") is not None


def test_a_damaged_table_is_a_diagnostic_that_names_it(own: Path) -> None:
    path = own / "sglang" / "0.5.99.json"
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(DiagnosticError, match="PD238") as raised:
        load_flag_table("sglang", "0.5.99")
    assert str(path) in raised.value.diagnostics[0].message


def test_a_table_that_cannot_be_kept_is_a_diagnostic(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiagnosticError, match="PD238"):
        keep(FlagTable.of("sglang", "1", []), tmp_path / "file")
