from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pdctl.state.observed import Phase
from pdctl.status import DeploymentStatus
from pdctl.views.canvas import Canvas
from pdctl.views.machine import to_json
from pdctl.views.status import statuses_lines
from pdctl.views.text import display_width

Golden = Callable[[str, str], None]


@pytest.mark.parametrize("width", [None, 80, 40])
def test_the_screen_of_status(
    golden: Golden, ready_status: DeploymentStatus, broken_status: DeploymentStatus, width: int | None
) -> None:
    lines = statuses_lines((ready_status, broken_status), Canvas(width=width))
    golden(f"screens/status-{width or 'pipe'}.txt", "\n".join(lines) + "\n")


def test_the_screen_of_status_in_colour(golden: Golden, broken_status: DeploymentStatus) -> None:
    lines = statuses_lines((broken_status,), Canvas(width=80, color=True))
    golden("screens/status-colour.txt", "\n".join(lines) + "\n")


def test_the_json_of_status(golden: Golden, ready_status: DeploymentStatus) -> None:
    golden("screens/status.json", to_json({"deployments": (ready_status,)}) + "\n")


def test_a_table_of_one_deployment_fits_80_columns(ready_status: DeploymentStatus) -> None:
    lines = list(statuses_lines((ready_status,), Canvas(width=80)))
    assert "PROCESS" in lines[1]
    assert all(display_width(line) <= 80 for line in lines)


def test_without_deployments_it_says_how_to_start_one() -> None:
    assert "`pdctl up FILE` starts one" in "\n".join(statuses_lines((), Canvas()))


def test_a_deployment_that_is_down_takes_two_lines(ready_status: DeploymentStatus) -> None:
    down = tuple(replace(each, phase=Phase.EXITED, pid=None) for each in ready_status.processes)
    lines = statuses_lines((replace(ready_status, phase=Phase.EXITED, processes=down),), Canvas())
    assert list(lines) == ["laptop-1p1d (local): exited", "  nothing of it runs"]


def test_an_endpoint_is_told_only_while_something_could_answer(broken_status: DeploymentStatus) -> None:
    assert "endpoint" not in "\n".join(statuses_lines((broken_status,), Canvas()))


def test_an_exit_code_without_a_reason_is_told(broken_status: DeploymentStatus) -> None:
    assert "decode-0.0: exit code 1" in list(statuses_lines((broken_status,), Canvas()))


def test_device_memory_has_a_column_where_a_process_holds_some(ready_status: DeploymentStatus) -> None:
    prefill, *others = ready_status.processes
    status = replace(ready_status, processes=(replace(prefill, device_bytes=58_120 * 2**20), *others))
    _, title, first, second, *_ = statuses_lines((status,), Canvas(width=100))
    assert title.split("  ")[-3:] == ["MEM", "DEVICE MEM", "REQUESTS"]
    assert first.split()[-3:] == ["57", "GiB", "12"]
    assert second.split()[-2:] == ["-", "12"]
