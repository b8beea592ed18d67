from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace

from pdctl.lifecycle.down import DownOutcome
from pdctl.plan.model import Endpoint
from pdctl.state.observed import Phase
from pdctl.status import DeploymentStatus
from pdctl.views.canvas import Canvas
from pdctl.views.outcome import down_lines, first_request_lines, interrupted_lines, up_lines

Golden = Callable[[str, str], None]
ENDPOINT = Endpoint(host="127.0.0.1", port=8000)


def test_the_screen_at_the_end_of_up(golden: Golden, ready_status: DeploymentStatus) -> None:
    golden("screens/up.txt", "\n".join(up_lines(ready_status, Canvas(width=80))) + "\n")


def test_a_first_request_is_offered_only_when_all_is_ready(ready_status: DeploymentStatus) -> None:
    lines = list(up_lines(replace(ready_status, phase=Phase.STARTING), Canvas()))
    assert lines[-1] == "hint: `pdctl status laptop-1p1d` shows when it is ready"
    assert "curl" not in "\n".join(lines)


def test_the_first_request_is_a_command_that_sends_valid_json() -> None:
    script = "\n".join(first_request_lines(ENDPOINT, 'it\'s "mine"'))
    echoed = subprocess.run(
        ["bash", "-c", f"curl() {{ printf '%s\\0' \"$@\"; }}\n{script}"], capture_output=True, check=True
    )
    words = echoed.stdout.decode().split("\0")
    assert words[1] == "http://127.0.0.1:8000/v1/chat/completions"
    assert json.loads(words[words.index("-d") + 1])["model"] == 'it\'s "mine"'


def test_the_first_request_fits_80_columns() -> None:
    assert all(len(line) <= 80 for line in first_request_lines(ENDPOINT, "smollm2-135m-instruct"))


def test_down_tells_what_was_stopped_and_what_is_left() -> None:
    outcome = DownOutcome(
        stopped=("a", "b"), leftovers=("port 8000 of h1",), pending=(), unproven=(), elapsed_s=1.25
    )
    assert list(down_lines("x", outcome, Canvas())) == [
        "x: stopped 2 processes in 1.2s",
        "left behind: port 8000 of h1",
    ]
    nothing = DownOutcome(stopped=(), leftovers=(), pending=(), unproven=(), elapsed_s=0.1)
    assert list(down_lines("x", nothing, Canvas())) == ["x: nothing was running"]


def test_an_interrupted_operation_says_what_runs_and_both_ways_on() -> None:
    lines = list(interrupted_lines("x", ("prefill-0.0",), "pdctl up x.yaml", Canvas()))
    assert lines[0] == "interrupted: still running: prefill-0.0"
    assert list(interrupted_lines("x", None, "pdctl up x.yaml", Canvas())) == [
        "interrupted: what runs of x is unknown, `pdctl status x` tells"
    ]
    assert lines[2] == "hint: `pdctl up x.yaml` goes on from here, `pdctl down x` stops all of it"
    assert list(interrupted_lines("x", (), "pdctl up x.yaml", Canvas())) == ["interrupted: nothing of x runs"]
