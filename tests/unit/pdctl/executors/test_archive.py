from __future__ import annotations

import ast
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from pdctl.executors.archive import shim_archive

SOURCES = sorted(Path(__file__).parents[4].joinpath("runtime", "shim").glob("*.py"))


def test_the_name_tells_the_content():
    archive = shim_archive()
    assert archive.name == f"shim-{hashlib.sha256(archive.content).hexdigest()}.py"


def test_the_packed_shim_runs_without_anything_installed(tmp_path):
    (tmp_path / "shim.py").write_bytes(shim_archive().content)
    done = subprocess.run(
        [sys.executable, "-I", "-S", tmp_path / "shim.py", "list", tmp_path], input=b"", capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"[]\n", b"")


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_the_shim_is_python_3_8_and_imports_only_the_standard_library(source):
    tree = ast.parse(source.read_text(), feature_version=(3, 8))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and node.level == 0
            else []
        )
    }
    assert imported <= sys.stdlib_module_names


def test_pdctl_finds_the_shim_without_importing_it():
    program = (
        "import sys; from pdctl.executors.archive import shim_archive\n"
        "shim_archive(); print('runtime' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
