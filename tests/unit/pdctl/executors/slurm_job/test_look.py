"""What is made of a look at nodes that are gone: with their job, or one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.executors.calls import LookQuery, ProbeRequest
from pdctl.executors.link import NodeLink
from pdctl.executors.shimmed import ShimmedExecutor
from pdctl.executors.slurm_job.home import ExitRecord
from pdctl.executors.slurm_job.look import look_at
from pdctl.executors.slurm_job.past import look_back
from pdctl.executors.slurm_job.place import Allocation, HeldNode, PastJob
from pdctl.inventory import declared
from pdctl.state.observed import Phase

WHY = "job 47 ended at 2026-11-30 04:30:12: it reached its time limit"


def _entry(process_id: str, state: str, **fields: object) -> dict[str, object]:
    entry = {"process_id": process_id, "node": "gpu1", "state": state, "num_alive": 0, "argv": [], "env": {}}
    return {**entry, "is_stopped": False, **fields}


@pytest.fixture
def left(make_shell: Callable[..., object]) -> Callable[..., ShimmedExecutor]:
    """Reads what `entries` say of run directories."""

    def reading(*entries: dict[str, object]) -> ShimmedExecutor:
        answers: list[object] = [[{"answer": list(entries)}]]
        link = NodeLink(name=None, shell=make_shell(answers), python="python3", root="/r")  # pyright: ignore
        return ShimmedExecutor(links=[link], link_of=lambda _node: link, find_nodes=declared)

    return reading


def test_what_a_job_left_says_how_each_process_ended(left):
    query = LookQuery(deployment="demo", probes=(ProbeRequest(node="gpu1", url="http://10.0.0.1:80/"),))
    reader = left(
        _entry("decode-0.0", "exited", exit_code=0, is_stopped=True),
        _entry("decode-1.0", "lost", reason="the host rebooted"),
    )
    sight = look_back(query, PastJob(job_id=47, generation=0, why=WHY), reader, None)
    assert [(each.phase, each.reason) for each in sight.state.processes] == [
        (Phase.EXITED, "stopped"),
        (Phase.LOST, WHY),
    ]
    assert [answer.error for answer in sight.answers] == [WHY]


def test_while_a_job_ends_nobody_knows_what_of_it_still_runs(left):
    past = PastJob(job_id=47, generation=0, why="job 47 is ending", is_over=False)
    reader = left(_entry("decode-0.0", "lost", reason="the host rebooted"))
    (found,) = look_back(LookQuery(deployment="demo"), past, reader, None).state.processes
    assert (found.phase, found.reason) == (Phase.UNKNOWN, "job 47 is ending")


def test_processes_that_only_the_stewards_record_knows_are_told_too(left):
    codes = {"decode-0.0": 0, "decode-1.0": 5, "decode-2.0": None}
    record = ExitRecord(job_id=47, generation=0, cause="timeout", reason="…", at=0.0, code=1, processes=codes)
    past = PastJob(job_id=47, generation=0, why=WHY)
    seen = look_back(LookQuery(deployment="demo"), past, left(), record).state.processes
    assert [(each.phase, each.exit_code, each.reason) for each in seen] == [
        (Phase.EXITED, 0, "exit code 0"),
        (Phase.FAILED, 5, "exit code 5"),
        (Phase.LOST, None, WHY),
    ]


def test_a_node_that_the_job_has_no_more_costs_its_probes_and_nothing_else(make_shell):
    answers: list[object] = [
        [
            {"answer": []},
            {"answer": [{"status": 200, "body": "ok", "error": None, "elapsed_s": 0.1}]},
            {"answer": {"decode-0.0": ["last"]}},
        ]
    ]
    link = NodeLink(name="gpu1", shell=make_shell(answers), python="python3", root="/r")
    nodes = ShimmedExecutor(links=[link], link_of={"gpu1": link}.get, find_nodes=declared)
    held = Allocation(job_id=47, generation=1, nodes=(HeldNode(name="gpu1"),))
    query = LookQuery(
        deployment="demo",
        probes=tuple(ProbeRequest(node=node, url=f"http://{node}/") for node in ("gpu9", "gpu1")),
        tail_of={"decode-0.0": "gpu1", "decode-1.0": "gpu9"},
    )
    sight = look_at(query, held, nodes)
    assert [(each.status, each.error) for each in sight.answers] == [
        (None, "job 47 has no node gpu9"),
        (200, None),
    ]
    assert dict(sight.tails) == {"decode-0.0": ("last",), "decode-1.0": ()}
