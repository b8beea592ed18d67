"""`pdctl render --as sbatch`: DeepSeek V3 on 13 nodes of a real Slurm, with a small process for each rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.slurm.cluster import SlurmCluster
from tests.testbed.slurm.spec import SlurmSpec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TREE = Path(__file__).parents[3]
RANK = Path(__file__).with_name("rank.py")
DEADLINE_S = 60.0
PROCESSES = (
    *(f"prefill-0.{rank}" for rank in range(4)),
    *(f"decode-0.{rank}" for rank in range(9)),
    "router-0.0",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A script that was submitted, on a cluster that knows nothing of pdctl."""

    slurm: SlurmCluster
    id: int
    folder: Path
    notes: Path

    @property
    def run_dir(self) -> Path:
        return self.folder / f"deepseek-v3-{self.id}.0"

    @property
    def output(self) -> str:
        path = self.folder / f"slurm-{self.id}.out"
        return path.read_text() if path.exists() else ""

    def note(self, process_id: str) -> dict[str, Any]:
        return json.loads((self.notes / f"{process_id}.json").read_text())

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.output:
            assert time.monotonic() < deadline, f"waited in vain for {text!r}:\n{self.output}"
            time.sleep(0.05)

    def wait_for_end(self) -> tuple[str, dict[str, Any]]:
        """Slurm's word and the script's own record."""
        state = self.slurm.wait_for_job(self.id, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        self.wait_for(" ended: ")
        assert [self.slurm.processes(node) for node in self.slurm.nodes] == [[]] * len(self.slurm.nodes)
        return state, json.loads((self.run_dir / "exit.json").read_text())


@pytest.fixture(scope="module")
def slurm(make_slurm: Callable[[SlurmSpec], SlurmCluster]) -> SlurmCluster:
    return make_slurm(SlurmSpec(num_nodes=14))


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an operator has rendered somewhere else, without any Slurm. Notes go beside it."""
    folder = tmp_path_factory.mktemp("rendered")
    sets = (f"engine.python={RANK}", f"router.python={RANK}", "router.kind=mini_lb")
    notes = (f"defaults.env.RANK_NOTES={folder}/notes", f"router.env.RANK_NOTES={folder}/notes")
    words = [word for each in (*sets, *notes) for word in ("--set", each)]
    render = ("render", "topologies/deepseek_v3.yaml", "--as", "sbatch", "-o", str(folder))
    subprocess.run(
        [sys.executable, "-m", "pdctl", *render, *words],
        cwd=TREE,
        env={**os.environ, "PYTHONPATH": str(TREE), "PDCTL_STATE_DIR": str(folder / "state")},
        check=True,
    )
    return folder / "deepseek-v3.sbatch"


@pytest.fixture
def submit(healed_slurm: SlurmCluster, script: Path, tmp_path: Path) -> Callable[..., Job]:
    """`submit("--time=1", failing="decode-0.3")`."""

    def call(*options: str, failing: str | None = None) -> Job:
        notes = script.parent / "notes"
        notes.mkdir(exist_ok=True)
        for left in notes.iterdir():
            left.unlink()
        if failing is not None:
            (notes / f"fail.{failing}").touch()
        printed = healed_slurm.command("sbatch", "--parsable", *options, script, cwd=tmp_path)
        return Job(slurm=healed_slurm, id=int(printed), folder=tmp_path, notes=notes)

    return call


def flags(argv: list[str], *names: str) -> list[str | None]:
    return [argv[argv.index(name) + 1] if name in argv else None for name in names]


def test_every_rank_gets_its_node_its_number_its_peers_and_its_devices(submit: Callable[..., Job]) -> None:
    job = submit()
    job.wait_for("deepseek-v3 serves at ")
    slurm = job.slurm
    prefill, decode = slurm.address("node1"), slurm.address("node5")
    for number, process_id in enumerate(PROCESSES[:-1]):
        note = job.note(process_id)
        leader, num_nodes, rank = (prefill, 4, number) if number < 4 else (decode, 9, number - 4)
        assert flags(note["argv"], "--dist-init-addr", "--nnodes", "--node-rank") == [
            f"{leader}:20000",
            str(num_nodes),
            str(rank),
        ]
        assert note["env"]["SLURMD_NODENAME"] == f"node{number + 1}"
        assert note["env"]["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    router = job.note("router-0.0")["argv"]
    assert flags(router, "--prefill", "--decode") == [f"http://{prefill}:30000", f"http://{decode}:30100"]
    endpoint = (job.run_dir / "endpoint").read_text().strip()
    with urllib.request.urlopen(f"{endpoint}/readiness", timeout=10) as answer:
        assert answer.status == 200
    slurm.command("scancel", "--batch", "--signal=TERM", str(job.id))
    state, record = job.wait_for_end()
    assert (state, record["cause"], record["code"]) == ("COMPLETED", "cancelled", 0)
    assert record["processes"] == dict.fromkeys(PROCESSES, 0)
    assert all(job.note(each)["was_asked"] for each in PROCESSES)


def test_a_rank_that_ends_ends_the_job_with_its_code_and_its_last_words(submit: Callable[..., Job]) -> None:
    job = submit(failing="decode-0.3")
    state, record = job.wait_for_end()
    assert (state, record["cause"], record["code"]) == ("FAILED", "failed", 7)
    assert record["reason"] == "decode-0.3 ended with 7"
    assert "no luck today" in job.output
    assert {code for each, code in record["processes"].items() if each != "decode-0.3"} == {0}


def test_scancel_lets_every_process_end_by_itself(submit: Callable[..., Job]) -> None:
    job = submit()
    job.wait_for("decode-0.8 starts on ")
    job.slurm.command("scancel", str(job.id))
    state, record = job.wait_for_end()
    assert (state, record["cause"]) == ("CANCELLED", "cancelled")


def test_slurm_accepts_the_script_and_says_what_it_lacks(
    healed_slurm: SlurmCluster, script: Path, tmp_path: Path
) -> None:
    healed_slurm.command("sbatch", "--test-only", script, cwd=tmp_path)
    printed = healed_slurm.command("sbatch", "--parsable", "--wait-all-nodes=1", "-N2", script, cwd=tmp_path)
    healed_slurm.wait_for_job(int(printed), "FAILED")
    output = (tmp_path / f"slurm-{printed.strip()}.out").read_text()
    assert output.endswith("the job has 2 nodes, the plan needs 13\n")
