"""What the documentation names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/reference/diag*.md"),
        *ROOT.glob("examples/*/*.md"),
    )
)
FOLDERS = (
    "pdctl",
    "runtime",
    "schemas",
    "topologies",
    "tests",
    "examples",
    "benchmarks",
    "docs",
    "tools",
    ".ci",
)


def named_paths(page: Path) -> list[str]:
    """Words in back-ticks that look like paths of this project, without placeholders."""
    words = re.findall(r"`([^`\s]+/[^`\s]*)`", page.read_text(encoding="utf-8"))
    return [word for word in words if word.split("/")[0] in FOLDERS and not re.search(r"[<*{A-Z…]", word)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path):
    assert [path for path in named_paths(page) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_resolves(page: Path):
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    files = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in files if not (page.parent / link).exists()] == []


def test_the_architecture_names_every_package():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = {
        f"{side}/{folder.name}"
        for side in ("pdctl", "runtime")
        for folder in (ROOT / side).iterdir()
        if folder.is_dir() and (folder / "__init__.py").exists()
    }
    assert {package for package in packages if f"{package}/" not in text} == set()
