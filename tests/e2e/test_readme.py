"""The README's commands give the README's output, and its first set-up command does the main job."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]


def shown() -> Iterator[tuple[str, str]]:
    """Every `$ pdctl …` or `$ python …` of the README that has its output under it.

    What needs hosts, `tests/e2e/ssh/test_example_ssh.py` compares.
    """
    for block in re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL):
        if block.startswith("$ examples/02-ssh/"):
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if command.split()[0] in ("pdctl", "python") and output:
                yield command, output


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment that `make` gives: the virtual environment first on PATH."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PDCTL_STATE_DIR": str(tmp_path_factory.mktemp("state")),
        "NO_COLOR": "1",
        "COLUMNS": "80",
    }


def test_the_commands_give_the_output_that_the_readme_shows(environ, masked):
    seen = []
    try:
        for command, expected in shown():
            done = subprocess.run(
                shlex.split(command), cwd=ROOT, env=environ, capture_output=True, text=True, check=False
            )
            seen.append(command.split()[:2])
            assert masked(done.stderr + done.stdout) == masked(expected), command
    finally:
        subprocess.run(["pdctl", "down", "laptop-1p1d"], env=environ, capture_output=True, check=False)
    assert ["pdctl", "up"] in seen
    assert ["pdctl", "down"] in seen


def test_the_topology_that_the_readme_shows_is_the_one_that_it_runs():
    shown_yaml = re.search(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown_yaml is not None
    file = (ROOT / "topologies" / "laptop_1p1d.yaml").read_text()
    assert shown_yaml.group(1) == "".join(
        line for line in file.splitlines(keepends=True) if not line.startswith("#")
    )


def test_the_demo_answers_in_real_english_and_leaves_nothing_running(environ):
    done = subprocess.run(
        [str(ROOT / "examples" / "01-laptop" / "run.sh")],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "The capital of France is Paris." in done.stdout
    assert "stopped 3 processes" in done.stdout
