from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pdctl.plan.codec import plan_to_json
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.views.canvas import Canvas
from pdctl.views.machine import to_json
from pdctl.views.plan import index_ranges, plan_lines, plan_summary, process_lines

Golden = Callable[[str, str], None]


@pytest.mark.parametrize("width", [None, 80, 40])
def test_the_screen_of_a_plan(golden: Golden, plan: LaunchPlan, width: int | None) -> None:
    golden(f"screens/plan-{width or 'pipe'}.txt", "\n".join(plan_lines(plan, Canvas(width=width))) + "\n")


def test_the_json_of_a_plan(golden: Golden, plan: LaunchPlan) -> None:
    golden("screens/plan.json", to_json(plan_to_json(plan)) + "\n")


def test_the_command_of_one_process_is_all_that_is_shown(golden: Golden, prefill: ProcessSpec) -> None:
    golden("screens/plan-process.txt", "\n".join(process_lines(prefill, Canvas())) + "\n")


def test_people_see_every_word_and_port_that_programs_see(plan: LaunchPlan) -> None:
    text = "\n".join(plan_lines(plan, Canvas(width=80)))
    for process in plan.processes:
        shown = [process.id, *(str(claim.port) for claim in process.ports)]
        shown += [word for word in process.argv if "'" not in word]
        assert all(word in text for word in shown)


def test_a_node_without_processes_is_left_out(plan: LaunchPlan) -> None:
    assert "spare" not in "\n".join(plan_lines(plan, Canvas()))


def test_many_predecessors_are_counted(plan: LaunchPlan) -> None:
    router = replace(plan.processes[1], after=tuple(f"prefill-{index}.0" for index in range(30)))
    text = "\n".join(plan_lines(replace(plan, processes=(router,)), Canvas()))
    assert "after prefill-0.0, prefill-1.0, prefill-2.0, prefill-3.0 and 26 more" in text


def test_the_summary_counts_nodes_in_use(plan: LaunchPlan) -> None:
    assert plan_summary(plan) == "2 processes of 2 instances on 1 node"


def test_device_indices_fold_into_ranges() -> None:
    assert index_ranges((6, 0, 1, 2, 3)) == "0-3,6"
    assert index_ranges((5,)) == "5"
