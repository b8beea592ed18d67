"""examples/02-ssh: the last section of its README, run as it is written, and the calls of run.sh."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.testbed.hosts import lifetime

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

TREE = Path(__file__).parents[3]
EXAMPLE = TREE / "examples/02-ssh"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment that `make setup` gives: the virtual environment first on PATH."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PDCTL_")},
        "PATH": f"{TREE / '.venv/bin'}:{os.environ['PATH']}",
        "PDCTL_STATE_DIR": str(tmp_path / "state"),
        "NO_COLOR": "1",
    }


def test_the_readme_serves_from_two_hosts_that_it_makes_itself(environ, tmp_path, make_hosts, masked):
    """And what it prints is what the project's own README shows, where hosts are called otherwise."""
    base = tmp_path / "hosts"
    (commands,) = re.findall(r"```sh\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    try:
        done = subprocess.run(
            ["sh", "-eu", "-c", commands.replace("/tmp/hosts", str(base))],
            cwd=TREE,
            env=environ,
            capture_output=True,
            text=True,
            timeout=380,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        lifetime.down(base)
    assert "answer:   The capital of France is Paris." in done.stdout
    assert "ssh-1p1d: stopped 3 processes" in done.stdout
    printed = re.sub(r"\bh(?=\d|\[)", "gpu", done.stdout + done.stderr)
    assert set(masked(_shown())) - set(masked(printed)) == set()


def _shown() -> str:
    """What the README shows of the example's output; `...` stands for lines that it leaves out."""
    (block,) = re.findall(
        r"```console\n\$ examples/02-ssh/run\.sh gpu1 gpu2\n(.*?)```",
        (TREE / "README.md").read_text(),
        re.DOTALL,
    )
    return block.replace("...\n", "")


@pytest.fixture
def script(tmp_path: Path, environ: dict[str, str]):
    """`script("gpu1", "gpu2", FAILING="up")`: run.sh with a `pdctl` that only notes how it was called."""
    program = tmp_path / "pdctl"
    noted = tmp_path / "calls"
    program.write_text(
        f'#!/bin/sh\necho "$* for $PREFILL_HOST $DECODE_HOST" >>"{noted}"\n'
        'if [ "$1" = "$FAILING" ]; then exit 7; fi\n'
        'if [ "$1" = status ]; then\n'
        '    echo \'{"deployments": [{"endpoint": {"host": "::1", "port": 9}}]}\'\n'
        "fi\n"
    )
    program.chmod(0o755)

    def run(*words: str, **variables: str) -> tuple[int, list[str]]:
        done = subprocess.run(
            [EXAMPLE / "run.sh", *words],
            env={**environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "FAILING": "", **variables},
            capture_output=True,
            timeout=60,
            check=False,
        )
        return done.returncode, noted.read_text().splitlines() if noted.exists() else []

    return run


TOPOLOGY = "examples/02-ssh/topology.yaml"
DOCTOR = f"doctor {TOPOLOGY} for gpu1 gpu2"
UP = f"up {TOPOLOGY} for gpu1 gpu2"
STATUS = "status ssh-1p1d --json for gpu1 gpu2"
DOWN = "down ssh-1p1d for gpu1 gpu2"


@pytest.mark.parametrize(
    ("failing", "code", "calls"),
    [
        ("doctor", 7, [DOCTOR]),  # nothing is there to be taken down
        ("up", 7, [DOCTOR, UP, DOWN]),
        ("", 1, [DOCTOR, UP, STATUS, DOWN]),  # nobody answers the question
    ],
)
def test_run_takes_down_what_it_has_begun(script, failing: str, code: int, calls: list[str]):
    assert script("gpu1", "gpu2", FAILING=failing, KEEP="1") == (code, calls)


def test_run_wants_two_hosts(script):
    assert script("gpu1") == (2, [])
