"""The Slurm of the testbed is a real one, breaks as told, heals, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.testbed.slurm import cluster as clusters
from tests.testbed.slurm import daemons
from tests.testbed.slurm.claim import CLAIMS
from tests.testbed.slurm.spec import SlurmSpec

_TREE = Path(__file__).parents[3]
_SLEEP = "exec sleep 4321"


def submit(slurm, *options: str) -> int:
    return int(slurm.command("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", _SLEEP))


def test_each_node_has_its_own_address_name_and_accelerators(healed_slurm):
    seen = healed_slurm.command(
        "srun", "-N8", "--gpus-per-node=8", "sh", "-c", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
    )
    assert sorted(seen.splitlines()) == [f"{node} 0,1,2,3,4,5,6,7" for node in healed_slurm.nodes]
    addresses = {healed_slurm.address(node) for node in healed_slurm.nodes}
    assert len(addresses) == 8
    assert f"NodeAddr={healed_slurm.address('node8')} " in healed_slurm.command(
        "scontrol", "show", "node", "node8"
    )


def test_a_node_that_is_lost_takes_its_tasks_along_and_comes_back(healed_slurm):
    job = submit(healed_slurm, "-N2", "-w", "node[3-4]", "--no-requeue")
    healed_slurm.wait_for_job(job, "RUNNING")
    while not healed_slurm.processes("node3"):
        time.sleep(0.02)
    healed_slurm.lose("node3")
    assert healed_slurm.processes("node3") == []
    assert healed_slurm.wait_for_job(job, "NODE_FAIL") == "NODE_FAIL"
    assert healed_slurm.node_states()["node3"] == "down"
    healed_slurm.heal()
    assert set(healed_slurm.node_states().values()) == {"idle"}


def test_a_drained_node_takes_no_jobs_and_a_stopped_controller_starts_none(healed_slurm):
    healed_slurm.drain("node1")
    job = submit(healed_slurm, "-w", "node1")
    assert healed_slurm.jobs() == {job: "PENDING"}
    healed_slurm.stop_controller()
    healed_slurm.continue_controller()
    healed_slurm.resume("node1")
    healed_slurm.wait_for_job(job, "RUNNING")
    healed_slurm.kill_controller()
    assert "is DOWN" in healed_slurm.try_command("scontrol", "ping").stdout
    healed_slurm.start_controller()
    healed_slurm.heal()
    assert healed_slurm.jobs() == {}


def test_two_clusters_stand_side_by_side_and_leave_no_process(tmp_path):
    with clusters.new_cluster(tmp_path / "a", SlurmSpec(num_nodes=2)) as one:
        with clusters.new_cluster(tmp_path / "b", SlurmSpec(num_nodes=1, gpus=0)) as other:
            # A task that left its job's session and outlives its job.
            other.command("srun", "sh", "-c", "setsid sleep 4322 > /dev/null 2>&1 &")
            submit(other)
            assert one.jobs() == {}
            assert one.node_states() == {"node1": "idle", "node2": "idle"}
        assert list(daemons.processes(tmp_path / "b")) == []
        assert len(list(daemons.processes(tmp_path / "a"))) >= 4
    assert list(daemons.processes(tmp_path / "a")) == []


def test_a_cluster_goes_with_the_next_one_when_its_maker_was_killed(tmp_path):
    program = f"""
import time, pathlib
from tests.testbed.slurm.cluster import new_cluster
from tests.testbed.slurm.spec import SlurmSpec
with new_cluster(pathlib.Path({str(tmp_path / "killed")!r}), SlurmSpec(num_nodes=1)):
    print("up", flush=True)
    time.sleep(600)
"""
    environ = {**os.environ, "PYTHONPATH": str(_TREE)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environ) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == b"up\n"
        maker.send_signal(signal.SIGKILL)
    assert list(daemons.processes(tmp_path / "killed"))
    with clusters.new_cluster(tmp_path / "next", SlurmSpec(num_nodes=1)):
        assert list(daemons.processes(tmp_path / "killed")) == []
    assert [CLAIMS.at(tmp_path / name) for name in ("killed", "next")] == [[], []]
