"""Executors under contract: each kind is one entry here, and passes the same suite. Doubles of libraries."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

from pdctl.executors import local, slurm, ssh
from pdctl.executors.base import Executor
from pdctl.plan.model import LaunchPlan, ProcessSpec, RoleKind
from pdctl.topology.model import Cluster, Host, Ssh, SshTransport
from pdctl.topology.slurm import Slurm
from tests.testbed.hosts.host_set import HostSet
from tests.testbed.slurm.cluster import SlurmCluster


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One executor and two node names; `fresh()` is the same cluster seen by another operator."""

    fresh: Callable[[], Executor]
    nodes: tuple[str, str]
    executor: Executor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "executor", self.fresh())

    def process(self, process_id: str, *argv: str, node: int = 0, **fields: object) -> ProcessSpec:
        defaults: dict[str, object] = {
            "instance_id": process_id.partition(".")[0],
            "role": RoleKind.DECODE,
            "node": self.nodes[node],
            "node_rank": 0,
            "device_indices": (),
            "argv": argv,
            "env": {},
            "listen": "127.0.0.1",
            "ports": (),
            "after": (),
            "ready": None,
            "grace_s": 5.0,
            "digest": "d1",
        }
        return ProcessSpec(id=process_id, **{**defaults, **fields})  # pyright: ignore[reportArgumentType]

    def start(self, process: ProcessSpec, deployment: str = "demo"):
        (outcome,) = self.executor.start(_plan(deployment, process), [process])
        return outcome

    def stop_all(self, deployment: str = "demo") -> None:
        found = self.executor.observe(deployment).processes
        outcomes = self.executor.stop(deployment, found, grace_s=0.0)
        assert all(not outcome.error and not outcome.survivors for outcome in outcomes)


def _plan(deployment: str, process: ProcessSpec) -> LaunchPlan:
    return LaunchPlan(
        name=deployment,
        executor="contract",
        topology_digest="t1",
        nodes=(),
        instances=(),
        processes=(process,),
        served_model="tiny",
        canary=False,
        digest="p1",
    )


def _local_bench(request: pytest.FixtureRequest, folder: Path) -> Bench:
    cluster, environ = Cluster(nodes=2), {"PDCTL_STATE_DIR": str(folder)}
    return Bench(fresh=lambda: local.create(cluster, environ), nodes=("node-00", "node-01"))


def _ssh_bench(request: pytest.FixtureRequest, folder: Path, transport: SshTransport) -> Bench:
    """Real hosts, the same for all tests; each test has run directories of its own there."""
    hosts: HostSet = request.getfixturevalue("two_hosts")
    settings = Ssh(config=str(hosts.ssh_config), transport=transport, state_dir=f"/tmp/{folder.name}")
    cluster = Cluster(executor="ssh", nodes=(Host(name="h1"), Host(name="h2")), ssh=settings)
    environ = os.environ | {"XDG_RUNTIME_DIR": request.getfixturevalue("session_folder")}
    return Bench(fresh=lambda: ssh.create(cluster, environ), nodes=("h1", "h2"))


def _slurm_bench(request: pytest.FixtureRequest, folder: Path) -> Bench:
    """Inside an allocation that all tests share; each test has a shared folder of its own."""
    cluster: SlurmCluster = request.getfixturevalue("slurm")
    environ = cluster.environ | request.getfixturevalue("held_job")
    settings = Slurm(run_dir=str(folder), python=sys.executable)

    def fresh() -> Executor:
        made = slurm.create(Cluster(executor="slurm", nodes=2, slurm=settings), environ)
        request.addfinalizer(made.tidy)  # the steps that looked
        return made

    return Bench(fresh=fresh, nodes=("node1", "node2"))


BENCHES = {
    "local": _local_bench,
    "ssh": functools.partial(_ssh_bench, transport="fabric"),
    "openssh": functools.partial(_ssh_bench, transport="openssh"),
    "slurm": _slurm_bench,
}


@pytest.fixture(scope="session")
def session_folder() -> Iterator[str]:
    """pytest's own folders are too long for the sockets of `ssh`."""
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as folder:
        yield folder


@pytest.fixture(scope="module")
def held_job(slurm: SlurmCluster) -> dict[str, str]:
    """What a script in a job with two nodes finds in its environment."""
    slurm.command("salloc", "--no-shell", "--nodes=2", "--nodelist=node1,node2", "--gres=gpu:4")
    (job_id,) = slurm.jobs()
    return {"SLURM_JOB_ID": str(job_id), "SLURM_JOB_NODELIST": "node[1-2]"}


@pytest.fixture(params=BENCHES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = BENCHES[request.param](request, tmp_path)
    yield made
    for deployment in made.executor.deployments():
        made.stop_all(deployment)


@pytest.fixture
def memfabric(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The Ascend library's double, in its place."""
    monkeypatch.syspath_prepend(Path(__file__).with_name("doubles"))
    monkeypatch.delitem(sys.modules, "memfabric_hybrid", raising=False)
    double = importlib.import_module("memfabric_hybrid")
    monkeypatch.setitem(sys.modules, "memfabric_hybrid", double)  # so that it is gone afterwards
    return double
