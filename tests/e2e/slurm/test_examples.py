"""examples/03-slurm: its scripts as a user runs them, with the reference engine's 2P+2D and a small model."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from tests.testbed.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TREE = Path(__file__).parents[3]
EXAMPLE = TREE / "examples/03-slurm"


@pytest.fixture(scope="module")
def environ(
    slurm: SlurmCluster, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What a user has after `make setup` on a cluster with a shared home; all tests share the state."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PDCTL_")},
        "PATH": f"{TREE / '.venv/bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(TREE),
        "PDCTL_STATE_DIR": str(tmp_path_factory.mktemp("state")),
        "SLURM_CONF": slurm.environ["SLURM_CONF"],
        "NODE_PYTHON": str(TREE / ".venv/bin/python"),
        "MODEL": str(tiny_llama),
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
    }


def run(environ: dict[str, str], *words: str | Path) -> str:
    done = subprocess.run(
        words, cwd=TREE, env=environ, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tasks(slurm: SlurmCluster) -> list[int]:
    return [pid for node in slurm.nodes for pid in slurm.processes(node)]


def test_a_login_node_submits_asks_and_takes_down(
    environ: dict[str, str], healed_slurm: SlurmCluster
) -> None:
    printed = run(environ, EXAMPLE / "1-from-a-login-node.sh")
    assert "slurm-2p2d (slurm): ready" in printed
    assert "\nanswer: " in printed
    assert "slurm-2p2d: stopped 5 processes" in printed
    assert (healed_slurm.jobs(), tasks(healed_slurm)) == ({}, [])


def test_the_users_own_job_serves_asks_and_ends(
    environ: dict[str, str], healed_slurm: SlurmCluster, tmp_path: Path
) -> None:
    output = tmp_path / "job.out"
    job = run(environ, "sbatch", "--parsable", f"--output={output}", EXAMPLE / "2-in-your-own-job.sbatch")
    assert healed_slurm.wait_for_job(int(job), "COMPLETED", "FAILED") == "COMPLETED", output.read_text()
    printed = output.read_text()
    assert "\nanswer: " in printed
    assert "slurm-2p2d: stopped 5 processes" in printed
    assert tasks(healed_slurm) == []


def test_the_rendered_script_serves_until_it_is_told_to_end(
    environ: dict[str, str], healed_slurm: SlurmCluster, tmp_path: Path
) -> None:
    printed = run(environ, EXAMPLE / "3-rendered.sh", tmp_path)
    url = printed.rpartition("serves at ")[2].strip()
    body = json.dumps({"text": "a", "sampling_params": {"max_new_tokens": 4, "temperature": 0}}).encode()
    request = urllib.request.Request(f"{url}/generate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer)["meta_info"]["completion_tokens"] == 4
    (job_id,) = healed_slurm.jobs()
    healed_slurm.command("scancel", "--batch", "--signal=TERM", str(job_id))
    healed_slurm.wait_for_job(job_id, "COMPLETED")
    record = tmp_path / f"slurm-2p2d-{job_id}.0/exit.json"
    deadline = time.monotonic() + 10
    while not record.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert json.loads(record.read_text())["cause"] == "cancelled"
    assert tasks(healed_slurm) == []
