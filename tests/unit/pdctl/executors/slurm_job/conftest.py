"""The folder that a job shares, as one operator's pdctl and a steward would see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.executors.slurm_job.home import Home
from pdctl.executors.slurm_job.mailbox import Mailbox


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(path=tmp_path / "pdctl-demo")
    made.prepare()
    return made


@pytest.fixture
def mailbox(home: Home) -> Mailbox:
    return home.mailbox
