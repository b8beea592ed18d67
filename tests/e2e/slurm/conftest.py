"""An operator at a login node of a real Slurm: `pdctl` as people run it, with engines that start at once."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.slurm.cluster import SlurmCluster

TREE = Path(__file__).parents[3]
ENGINE = TREE / "tests/e2e/pdctl/dummy_engine.py"


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@dataclass
class Desk:
    folder: Path
    slurm: SlurmCluster
    environ: dict[str, str]
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def pdctl(self, *words: str | Path, code: int = 0, **environ: str) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "pdctl", *map(str, words)],
            cwd=self.folder,
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    def begin(self, *words: str | Path) -> subprocess.Popen[bytes]:
        """Start `pdctl` and go on; its output goes to `pdctl.out`."""
        with (self.folder / "pdctl.out").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "pdctl", *map(str, words)],
                cwd=self.folder,
                env=self.environ,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running.append(process)
        return process

    def output(self) -> str:
        return (self.folder / "pdctl.out").read_text()

    def topology(self, *, name: str = "desk", slurm: str = "", decode: str = "", nodes: int = 2) -> str:
        """Prefill and router on one node, and a decode instance on each other."""
        path = f"{name}.yaml"
        (self.folder / path).write_text(
            "schema: pdctl/v1\n"
            f"name: {name}\n"
            "model: {path: none}\n"
            "engine: {kind: dummy}\n"
            f"cluster:\n  executor: slurm\n  nodes: {nodes}\n  devices_per_node: 8\n"
            f"  slurm: {{python: {sys.executable}, run_dir: shared, {slurm}}}\n"
            "prefill: {nodes: 1}\n"
            f"decode: {{instances: {nodes - 1}, nodes: 1, {decode}}}\n"
            "health: {stop_grace_s: 1, ready_deadline_s: 30}\n"
        )
        return path

    def script(self, *lines: str, name: str = "user.sh", nodes: int = 2, options: str = "") -> Path:
        """A batch script as a user writes it; `pdctl` in it is this one."""
        path = self.folder / name
        head = ["#!/bin/bash", f"#SBATCH --nodes={nodes} --exclusive --gpus-per-node=8 {options}"]
        head += [f"#SBATCH --output={self.folder}/user.log", f"cd {self.folder}"]
        path.write_text("\n".join([*head, f'pdctl() {{ {sys.executable} -m pdctl "$@"; }}', *lines]) + "\n")
        return path

    def sbatch(self, script: Path) -> int:
        done = subprocess.run(
            ["sbatch", "--parsable", script], env=self.environ, capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    def processes(self, name: str = "desk") -> list[dict[str, Any]]:
        (status,) = self.pdctl("status", name, "--json").json["deployments"]
        return status["processes"]

    def states(self, name: str = "desk") -> dict[str, str]:
        return {process["id"]: process["phase"] for process in self.processes(name)}

    def home(self, name: str = "desk") -> Path:
        return self.folder / "shared" / f"pdctl-{name}"

    def job_record(self, name: str = "desk") -> dict[str, Any]:
        path = self.home(name) / "job.json"
        return json.loads(path.read_text()) if path.exists() else {"state": None}

    def exit_record(self, name: str = "desk") -> dict[str, Any]:
        return json.loads((self.home(name) / "exit.json").read_text())

    def marked_pids(self) -> list[int]:
        """OS processes of this desk's deployments, by the mark that they inherit; zombies are none."""
        mark = f"DESK_MARK={self.environ['DESK_MARK']}".encode()
        return [int(each.name) for each in Path("/proc").glob("[0-9]*") if _has(each, mark)]


def _has(process: Path, mark: bytes) -> bool:
    try:
        is_dead = (process / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        return not is_dead and mark in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


@pytest.fixture(scope="session")
def dummy_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dummy engine as an installed package."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ENGINE, folder)
    metadata = folder / "dummy_engine-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: dummy-engine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[pdctl.engines]\ndummy = dummy_engine\n")
    return folder


@pytest.fixture
def desk(tmp_path: Path, healed_slurm: SlurmCluster, dummy_site: Path) -> Iterator[Desk]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PDCTL_", "SLURM_"))}
    made = Desk(
        folder=tmp_path,
        slurm=healed_slurm,
        environ={
            **environ,
            **{key: value for key, value in healed_slurm.environ.items() if key == "SLURM_CONF"},
            "PDCTL_STATE_DIR": str(tmp_path / "state"),
            "PYTHONPATH": f"{dummy_site}{os.pathsep}{TREE}",
            "DESK_MARK": str(tmp_path),
            "NO_COLOR": "1",
            "COLUMNS": "120",
        },
    )
    yield made
    for process in made.running:
        if process.poll() is None:
            process.kill()
            process.wait()
    for job_id in healed_slurm.jobs():
        healed_slurm.try_command("scancel", str(job_id))
    for pid in made.marked_pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def wait_until() -> Callable[[Callable[[], object], str], None]:
    """Look again and again; the one place of these tests where time is spent waiting."""

    def wait(holds: Callable[[], object], what: str, timeout_s: float = 90.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, f"in vain: {what}"
            time.sleep(0.1)

    return wait
