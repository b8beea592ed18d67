"""Run a command line in this process, with a state of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pdctl.cli.app import run

ROOT = Path(__file__).parents[4]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator without deployments, in the project's folder, on 80 columns without colour."""
    folder = tmp_path / "state"
    monkeypatch.setenv("PDCTL_STATE_DIR", str(folder))
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "PDCTL_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(ROOT)
    return folder


@pytest.fixture
def pdctl(state: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`pdctl("plan", "FILE")` gives the exit code and both streams."""

    def call(*args: str) -> Ran:
        code = run(args)
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return call
