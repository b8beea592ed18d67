"""From a wheel or an interpreter to a table."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.inspection.inspect import inspect_python, inspect_wheel

SOURCE = """
raise RuntimeError("nobody may import this")
class ServerArgs:
    def add_cli_args(parser):
        parser.add_argument("--page-size", type=int)
"""
METADATA = "Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.99\n"


def wheel(folder: Path, source: str = SOURCE, name: str = "sglang-0.5.99-py3-none-any.whl") -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sglang/__init__.py", "raise RuntimeError")
        archive.writestr("sglang/srt/server_args.py", source)
    return path


@pytest.fixture
def python(tmp_path: Path) -> str:
    """An interpreter that has an SGLang, which ends whoever imports it."""
    site = tmp_path / "site"
    (site / "sglang" / "srt").mkdir(parents=True)
    (site / "sglang" / "__init__.py").write_text("raise SystemExit('imported')")
    (site / "sglang" / "srt" / "server_args.py").write_text(SOURCE)
    (site / "sglang-0.5.99.dist-info").mkdir()
    (site / "sglang-0.5.99.dist-info" / "METADATA").write_text(METADATA)
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_a_wheel_is_read_with_the_version_of_its_name(tmp_path: Path) -> None:
    table = inspect_wheel(wheel(tmp_path))
    assert (table.label, [flag.name for flag in table.flags]) == ("sglang 0.5.99", ["page-size"])


def test_an_installed_program_is_located_but_never_imported(python: str) -> None:
    assert inspect_python("sglang", python).label == "sglang 0.5.99"


def test_what_cannot_be_read_is_a_diagnostic(tmp_path: Path, python: str) -> None:
    text = tmp_path / "sglang-0.5.99-any.whl"
    text.write_text("no archive")
    attempts: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: inspect_wheel(tmp_path / "sglang-0.5.99-none.whl"), "can't be read"),
        (lambda: inspect_wheel(text), "can't be read"),
        (lambda: inspect_wheel(wheel(tmp_path, name="torch-2.0-py3-none-any.whl")), "is no wheel of"),
        (lambda: inspect_wheel(wheel(tmp_path, source="class")), "can't be parsed"),
        (lambda: inspect_wheel(wheel(tmp_path, source="")), "no flags found"),
        (lambda: inspect_python("vllm", python), "can't read the flags of `vllm`"),
        (lambda: inspect_python("sglang_router", str(tmp_path / "none")), "doesn't run"),
        (lambda: inspect_python("sglang_router", "/bin/false"), "ended with 1"),
        (lambda: inspect_python("sglang", sys.executable), "isn't installed"),
    )
    for attempt, message in attempts:
        with pytest.raises(DiagnosticError, match="PD239") as raised:
            attempt()
        assert message in str(raised.value)
