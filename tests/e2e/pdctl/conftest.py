"""`pdctl` as people run it: the real command in a process of its own, with a state directory of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PDCTL = (sys.executable, "-m", "pdctl")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@dataclass
class Bench:
    """One operator's desk: topologies to edit, `pdctl` to run, processes to look at."""

    folder: Path
    environ: dict[str, str]
    ports: dict[str, int]
    running: list[subprocess.Popen] = field(default_factory=list)

    def pdctl(self, *words: str, timeout_s: float = 60.0, **environ: str) -> Ran:
        done = subprocess.run(
            [*PDCTL, *words],
            env={**self.environ, **environ},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def begin(self, *words: str) -> subprocess.Popen:
        """Start `pdctl` and go on; output goes to `pdctl.out`."""
        with (self.folder / "pdctl.out").open("wb") as out:
            process = subprocess.Popen(
                [*PDCTL, *words],
                env=self.environ,
                cwd=self.folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running.append(process)
        return process

    def ready_with(self, name: str) -> str:
        """Environment of an engine that is ready when `show(name)` was called."""
        return f"env: {{DUMMY_READY_WITH_FILE: '{self.folder / name}'}}"

    def show(self, name: str) -> None:
        (self.folder / name).touch()

    def output(self) -> str:
        return (self.folder / "pdctl.out").read_text()

    def topology(self, *, prefill: str = "", decode: str = "", health: str = "", more: str = "") -> str:
        """Write `t.yaml`: a dummy prefill and decode behind the mini load balancer, on own ports."""
        ports = self.ports
        (self.folder / "t.yaml").write_text(
            "schema: pdctl/v1\n"
            "name: bench\n"
            "model: {path: none}\n"
            "engine: {kind: dummy}\n"
            f"prefill: {{port: {ports['prefill']}, bootstrap_port: {ports['bootstrap']}, {prefill}}}\n"
            f"decode: {{port: {ports['decode']}, {decode}}}\n"
            f"router: {{port: {ports['router']}}}\n"
            f"health: {{stop_grace_s: 1, {health}}}\n" + more
        )
        return "t.yaml"

    def processes(self) -> dict[str, dict]:
        """What `pdctl status` tells of each process."""
        (status,) = self.pdctl("status", "bench", "--json").json["deployments"]
        return {process["id"]: process for process in status["processes"]}

    def marked_pids(self) -> list[int]:
        """OS processes of this bench, by the mark that their environment carries; zombies are none."""
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _is_marked(entry, self.environ["BENCH_MARK"])
        ]

    def state_files(self) -> list[str]:
        root = Path(self.environ["PDCTL_STATE_DIR"])
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def _is_marked(entry: Path, mark: str) -> bool:
    try:
        if (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        return f"BENCH_MARK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


@pytest.fixture(scope="session")
def plugin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dummy engine, installed as a package outside pdctl is: one module and its entry point."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("dummy_engine.py", "counted_hosts.py"):
        shutil.copy(HERE / name, folder / name)
    metadata = folder / "dummy_engine-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: dummy-engine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[pdctl.engines]\ndummy = dummy_engine\n[pdctl.executors]\ncounted = counted_hosts\n"
    )
    return folder


@pytest.fixture
def bench(tmp_path: Path, plugin_folder: Path, free_port: Callable[..., int]) -> Iterator[Bench]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PDCTL_")}
    bench = Bench(
        folder=tmp_path,
        environ={
            **environ,
            "PDCTL_STATE_DIR": str(tmp_path / "state"),
            # This tree before another that may be installed.
            "PYTHONPATH": f"{plugin_folder}{os.pathsep}{HERE.parents[2]}",
            "BENCH_MARK": str(tmp_path),
            "NO_COLOR": "1",
            "COLUMNS": "100",
        },
        # Instances of a role count up.
        ports={name: free_port(2) for name in ("prefill", "bootstrap", "decode", "router")},
    )
    yield bench
    for process in bench.running:
        if process.poll() is None:
            process.kill()
            process.wait()
    for pid in bench.marked_pids():
        os.kill(pid, signal.SIGKILL)
