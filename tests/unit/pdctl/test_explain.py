"""Codes and their pages belong together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pdctl
from pdctl import explain
from pdctl.diagnostics import DiagnosticError

SECTIONS = ("## What", "## Why it hurts", "## How to fix", "## Example")


def codes_in_source() -> set[str]:
    """Codes that diagnostics are made with: string literals, so that prose about a code doesn't count."""
    sources = Path(pdctl.__file__).parent.rglob("*.py")
    return {
        code for path in sources for code in re.findall(r'"(PD[0-9]{3})"', path.read_text(encoding="utf-8"))
    }


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert set(explain.codes()) == codes_in_source()


@pytest.mark.parametrize("code", explain.codes())
def test_a_page_says_what_why_and_how(code: str) -> None:
    lines = explain.explanation(code).splitlines()
    assert re.fullmatch(rf"# {code}: [^A-Z].*[^.]", lines[0])
    headings = [line for line in lines if line.startswith("## ")]
    assert tuple(headings[:4]) == SECTIONS
    assert headings[4:] in ([], ["## Source"])
    assert all(len(line) <= 80 for line in lines)  # a terminal shows them as they are


def test_a_code_is_found_in_any_case() -> None:
    assert explain.explanation(" pd302 ").startswith("# PD302: ")
    assert explain.title("pd302") == "page sizes differ"


@pytest.mark.parametrize("code", ["PD999", "", "../PD302", "PD302.md", "x"])
def test_an_unknown_code_is_a_diagnostic(code: str) -> None:
    with pytest.raises(DiagnosticError) as caught:
        explain.explanation(code)
    assert caught.value.diagnostics[0].code == "PD120"
