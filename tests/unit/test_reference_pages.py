"""The reference pages say what the schema and the explanations say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MADE = runpy.run_path(str(ROOT / "docs" / "tools" / "reference_pages.py"))["pages"]()


@pytest.mark.parametrize("name", MADE)
def test_a_reference_page_is_fresh(name: str) -> None:
    page = ROOT / "docs" / "reference" / name
    assert page.read_text(encoding="utf-8") == MADE[name], "run `python docs/tools/reference_pages.py`"


def test_every_page_of_the_folder_is_made() -> None:
    assert {path.name for path in (ROOT / "docs" / "reference").glob("*")} == set(MADE)


def test_keys_of_nested_mappings_and_lists_are_there() -> None:
    headings = {line.lstrip("# ") for line in MADE["topology.md"].splitlines() if line.startswith("#")}
    assert {"`model.path`", "`prefill.parallel.attn_dp`", "`transfer.staging.mode`"} <= headings
    assert "`cluster.nodes[].address`" in headings
