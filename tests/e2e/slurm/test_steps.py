"""Processes as steps of a real Slurm's jobs: how they start, are seen and end, and what faults do to them.

Whoever looks is at a login node: all knowledge of the job comes from the shared folder and from Slurm.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from pdctl.executors import slurm as slurm_executor
from pdctl.executors.base import Executor
from pdctl.executors.calls import LogQuery, LookQuery, ProbeRequest, StartOutcome
from pdctl.executors.slurm_job.home import ExitRecord, Home, JobRecord
from pdctl.plan.model import LaunchPlan, ProcessSpec, RoleKind
from pdctl.state.observed import ObservedProcess, Phase
from pdctl.topology.model import Cluster, Host
from pdctl.topology.slurm import Slurm
from tests.testbed.slurm.cluster import SlurmCluster
from tests.testbed.slurm.spec import SlurmSpec

SHOW = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES; exec sleep 1000"
TELLS_TERM = "trap 'echo asked to end; exit 0' TERM; echo ready; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def slurm(make_slurm: Callable[[SlurmSpec], SlurmCluster]) -> SlurmCluster:
    return make_slurm(SlurmSpec(num_nodes=4, kill_wait_s=2))


@dataclass(frozen=True)
class Deployed:
    """A job that does nothing but hold its nodes, and the executor of somebody outside of it."""

    slurm: SlurmCluster
    home: Home
    settings: Slurm
    job_id: int

    def executor(self) -> Executor:
        return slurm_executor.create(Cluster(executor="slurm", slurm=self.settings), self.slurm.environ)


@pytest.fixture
def deploy(healed_slurm: SlurmCluster, tmp_path: Path) -> Callable[..., Deployed]:
    """`deploy("--gres=gpu:4", hosts=("node1", "node2"))` submits such a job, and waits until it runs."""

    def made(*options: str, hosts: tuple[str, ...] = ("node1", "node2"), **settings: object) -> Deployed:
        home = Home(path=tmp_path / "pdctl-demo")
        home.prepare()
        script = tmp_path / "job.sh"
        script.write_text("#!/bin/bash\nexec sleep 1000\n")
        nodes = () if ":" in options else (f"--nodelist={','.join(hosts)}",)
        words = ("--parsable", "--output=/dev/null", *nodes, *options, script)
        job_id = int(healed_slurm.command("sbatch", *words))
        healed_slurm.wait_for_job(job_id, "RUNNING")
        home.save_job(JobRecord(job_id=job_id, hosts=hosts))
        stated = {"run_dir": str(tmp_path), "job_name": "pdctl-demo", "python": sys.executable, **settings}
        return Deployed(healed_slurm, home, Slurm(**stated), job_id)  # pyright: ignore[reportArgumentType]

    return made


@pytest.fixture
def start() -> Iterator[Callable[..., tuple[StartOutcome, ...]]]:
    """Start `argv` by process id; `on` is the node of each."""
    used: list[Executor] = []

    def begin(executor: Executor, argv: dict[str, str], *, on: dict[str, str], devices: str = "0"):
        used.append(executor)
        processes = tuple(
            ProcessSpec(
                id=process_id,
                instance_id=process_id.partition(".")[0],
                role=RoleKind.DECODE,
                node=on[process_id],
                node_rank=0,
                device_indices=(),
                argv=("sh", "-c", program),
                env={"CUDA_VISIBLE_DEVICES": devices},
                listen="127.0.0.1",
                ports=(),
                after=(),
                ready=None,
                grace_s=5.0,
                digest="d1",
            )
            for process_id, program in argv.items()
        )
        return executor.start(_plan(processes), processes)

    yield begin
    for executor in used:
        executor.tidy()


def _plan(processes: tuple[ProcessSpec, ...]) -> LaunchPlan:
    return LaunchPlan(
        name="demo",
        executor="slurm",
        topology_digest="t1",
        nodes=(),
        instances=(),
        processes=processes,
        served_model="tiny",
        canary=False,
        digest="p1",
    )


def _lines(executor: Executor, node_of: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {process_id: [] for process_id in node_of}
    with closing(executor.logs(LogQuery(deployment="demo", node_of=node_of, tail=None))) as lines:
        for line in lines:
            found[line.process_id].append(line.text)
    return found


def _seen(executor: Executor) -> dict[str, ObservedProcess]:
    return {process.id: process for process in executor.observe("demo").processes}


def _wait_until(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def test_each_process_is_a_step_that_has_its_share_of_the_devices_that_the_job_got(deploy, start, slurm):
    """Somebody else has the first four of eight on the node; the plan counts from 0 all the same."""
    slurm.command("salloc", "--no-shell", "--nodelist=node1", "--gres=gpu:4")
    deployed = deploy("--gres=gpu:4")
    executor, on = deployed.executor(), {"decode-0.0": "node1", "decode-1.0": "node2"}
    outcomes = start(executor, dict.fromkeys(on, SHOW), on=on, devices="1,2")
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert _lines(executor, on) == {"decode-0.0": ["node1 5,6"], "decode-1.0": ["node2 1,2"]}
    steps = slurm.command("squeue", "-h", "-s", "-O", "StepName:20,Nodes:10").splitlines()
    assert {tuple(line.split()) for line in steps} >= {("decode-0.0", "node1"), ("decode-1.0", "node2")}
    (status,) = deployed.home.run_root(deployed.job_id, 0).glob("demo/decode-0.0/*/status.json")
    assert '"given": {"CUDA_VISIBLE_DEVICES": "5,6"}' in status.read_text()


def test_looking_costs_a_step_for_each_node_however_often_one_looks(deploy, slurm):
    executor = deploy().executor()
    for _ in range(5):
        assert executor.observe("demo").unreachable == ()
    steps = slurm.command("squeue", "-h", "-s", "-O", "StepName:20,Nodes:10").splitlines()
    looking = sorted(line.split()[1] for line in steps if line.split()[0] == "pdctl")
    executor.tidy()
    assert looking == ["node1", "node2"]
    _wait_until(lambda: " pdctl " not in slurm.command("squeue", "-h", "-s", "-O", "StepName:20,Nodes:10"))


def test_a_step_that_does_not_start_on_one_node_is_that_processs_error_in_slurms_words(deploy, start, slurm):
    executor, on = deploy("--no-kill").executor(), {"decode-0.0": "node1", "decode-1.0": "node2"}
    slurm.lose("node2")
    good, bad = start(executor, dict.fromkeys(on, SHOW), on=on)
    assert (good.error, bad.is_unreachable) == (None, False)
    assert "Requested node configuration is not available" in (bad.error or "")


def test_a_refused_option_of_srun_is_told(deploy, start):
    executor = deploy(srun_args=("--distribution=nonsense",)).executor()
    (outcome,) = start(executor, {"decode-0.0": SHOW}, on={"decode-0.0": "node1"})
    assert "distribution" in (outcome.error or "")


def test_nodes_of_both_shapes_of_a_heterogeneous_job_are_reached(deploy, start):
    groups = ("--nodelist=node1", "--gres=gpu:4", ":", "--nodelist=node3", "--gres=gpu:2")
    deployed = deploy(*groups, hosts=("node1", "node3"))
    executor, on = deployed.executor(), {"decode-0.0": "node1", "decode-1.0": "node3"}
    outcomes = start(executor, dict.fromkeys(on, SHOW), on=on, devices="1")
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert _lines(executor, on) == {"decode-0.0": ["node1 1"], "decode-1.0": ["node3 1"]}


def test_a_running_jobs_nodes_are_those_of_the_topology(deploy, slurm):
    executor = deploy().executor()
    real = executor.acquire(Cluster(executor="slurm", nodes=2))
    assert [(node.name, node.address) for node in real.nodes] == [
        (node, slurm.address(node)) for node in ("node1", "node2")
    ]
    named = executor.acquire(Cluster(executor="slurm", nodes=(Host(name="node2", address="10.0.0.2"),)))
    assert [(node.name, node.address) for node in named.nodes] == [("node2", "10.0.0.2")]


def test_a_cancelled_job_tells_how_each_process_ended(deploy, start, slurm):
    deployed = deploy()
    executor, on = deployed.executor(), {"decode-0.0": "node1", "decode-1.0": "node2"}
    start(executor, {"decode-0.0": TELLS_TERM, "decode-1.0": "exit 3"}, on=on)
    _wait_until(lambda: _lines(executor, {"decode-0.0": "node1"})["decode-0.0"])
    slurm.command("scancel", str(deployed.job_id))
    slurm.wait_for_job(deployed.job_id, "CANCELLED")
    seen = _seen(deployed.executor())
    assert (seen["decode-0.0"].phase, seen["decode-0.0"].reason) == (Phase.EXITED, "stopped")
    assert (seen["decode-1.0"].phase, seen["decode-1.0"].exit_code) == (Phase.FAILED, 3)
    lines = _lines(executor, on)["decode-0.0"]  # the shell also says that its `sleep` got the signal
    assert (lines[0], lines[-1]) == ("ready", "asked to end")
    assert executor.prove("demo", (), {}) == ()
    probe = ProbeRequest(node="node1", url="http://127.0.0.1:1/")
    (answer,) = executor.look(LookQuery(deployment="demo", probes=(probe,))).answers
    assert answer.error is not None
    assert answer.error.startswith(f"job {deployed.job_id} ended at ")


def test_what_has_no_record_of_its_end_was_lost_with_its_job(deploy, start, slurm):
    deployed = deploy()
    executor = deployed.executor()
    (outcome,) = start(executor, {"decode-0.0": SHOW}, on={"decode-0.0": "node1"})
    (status,) = deployed.home.run_root(deployed.job_id, 0).glob("demo/decode-0.0/*/status.json")
    os.kill(json.loads(status.read_text())["shim_pid"], signal.SIGKILL)
    os.kill(outcome.pid or 0, signal.SIGKILL)
    slurm.command("scancel", str(deployed.job_id))
    slurm.wait_for_job(deployed.job_id, "CANCELLED")
    found = _seen(executor)["decode-0.0"]
    assert found.phase is Phase.LOST
    assert (found.reason or "").startswith(f"job {deployed.job_id} ended at ")


def test_run_directories_that_lay_on_the_nodes_are_told_from_the_stewards_record(deploy, slurm, tmp_path):
    deployed = deploy(node_dir=str(tmp_path / "on-the-node"))
    codes = {"decode-0.0": 0, "decode-1.0": 7, "decode-2.0": None}
    record = ExitRecord(
        job_id=deployed.job_id,
        generation=0,
        cause="timeout",
        reason="its time was over",
        at=0.0,
        code=1,
        processes=codes,
    )
    deployed.home.save_exit(record)
    slurm.command("scancel", str(deployed.job_id))
    slurm.wait_for_job(deployed.job_id, "CANCELLED")
    seen = _seen(deployed.executor())
    assert [each.phase for each in seen.values()] == [Phase.EXITED, Phase.FAILED, Phase.LOST]
    assert (seen["decode-2.0"].reason or "").endswith(": its time was over")


def test_a_failed_nodes_processes_are_lost_and_the_others_go_on(deploy, start, slurm):
    executor, on = deploy("--no-kill").executor(), {"decode-0.0": "node1", "decode-1.0": "node2"}
    start(executor, dict.fromkeys(on, SHOW), on=on)
    slurm.lose("node2")
    _wait_until(lambda: not executor.observe("demo").unreachable)
    seen = _seen(executor)
    assert seen["decode-0.0"].phase is Phase.STARTING
    assert seen["decode-1.0"].phase is Phase.LOST
    assert (seen["decode-1.0"].reason or "").startswith("node2 is down: lost by a test")


def test_a_controller_that_hangs_hides_nothing_from_whoever_was_looking(deploy, start, slurm):
    deployed = deploy()
    executor = deployed.executor()
    start(executor, {"decode-0.0": SHOW}, on={"decode-0.0": "node1"})
    slurm.stop_controller()
    try:
        assert _seen(executor)["decode-0.0"].phase is Phase.STARTING
    finally:
        slurm.continue_controller()


def test_a_controller_that_is_gone_makes_nodes_unreachable_never_processes_gone(deploy, start, slurm):
    deployed = deploy()
    start(deployed.executor(), {"decode-0.0": SHOW}, on={"decode-0.0": "node1"})
    slurm.kill_controller()
    state = deployed.executor().observe("demo")
    slurm.start_controller()
    assert [(node.name, node.code) for node in state.unreachable] == [("node1", "PD533"), ("node2", "PD533")]
    executor = deployed.executor()
    _wait_until(lambda: not executor.observe("demo").unreachable)  # it finds its nodes again
    assert _seen(executor)["decode-0.0"].phase is Phase.STARTING
    executor.tidy()


def test_processes_live_through_a_restart_of_slurmd(deploy, start, slurm):
    executor = deploy().executor()
    start(executor, {"decode-0.0": SHOW}, on={"decode-0.0": "node1"})
    slurm.kill_slurmd("node1")
    slurm.start_slurmd("node1")
    assert _seen(executor)["decode-0.0"].phase is Phase.STARTING
    (outcome,) = executor.stop("demo", executor.observe("demo").processes)
    assert (outcome.was_alive, outcome.error) == (True, None)
