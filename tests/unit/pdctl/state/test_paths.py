from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.state.paths import deployments_dir, run_root, state_dir

HOME_STATE = Path.home() / ".local/state/pdctl"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, HOME_STATE),
        ({"XDG_STATE_HOME": "/state"}, Path("/state/pdctl")),
        ({"XDG_STATE_HOME": ""}, HOME_STATE),
        ({"XDG_STATE_HOME": "relative"}, HOME_STATE),
        ({"PDCTL_STATE_DIR": "/mine", "XDG_STATE_HOME": "/state"}, Path("/mine")),
        ({"PDCTL_STATE_DIR": "~/mine"}, Path.home() / "mine"),
        ({"PDCTL_STATE_DIR": "mine"}, Path.cwd() / "mine"),
        ({"PDCTL_STATE_DIR": ""}, HOME_STATE),
    ],
)
def test_the_environment_chooses_the_state_directory(environ, expected):
    assert state_dir(environ) == expected


def test_records_and_runs_lie_apart():
    assert deployments_dir(Path("/s")) == Path("/s/deployments")
    assert run_root(Path("/s")) == Path("/s/run")
