"""A node as the shim sees it: the packed file, a root for run directories, real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pdctl.executors.archive import shim_archive
from tests.testbed.waiting import wait_until

Answer = dict[str, Any]


class ShimNode:
    """Calls the packed shim as an executor does; `deployment` is always `demo`."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.root = folder / "run"
        self.archive = folder / "shim.py"
        self.archive.write_bytes(shim_archive().content)
        self.python = python
        self.enter: tuple[str, ...] = ()  # a command that runs another where the node is

    def argv(self, verb: str, *names: str) -> list[str]:
        return [*self.enter, self.python, "-I", "-S", str(self.archive), verb, *names]

    def ask(self, verb: str, *process_ids: str, request: object = None) -> Any:
        return self.ask_names(verb, str(self.root), "demo", *process_ids, request=request)

    def ask_names(self, verb: str, *names: str, request: object = None) -> Any:
        (answer,) = self.ask_lines_names(verb, *names, request=request)
        return answer

    def ask_lines(self, verb: str, *process_ids: str, request: object = None) -> list[Answer]:
        return self.ask_lines_names(verb, str(self.root), "demo", *process_ids, request=request)

    def ask_lines_names(self, verb: str, *names: str, request: object = None) -> list[Any]:
        done = subprocess.run(
            self.argv(verb, *names),
            input=json.dumps(request or {}),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stderr == ""
        return [json.loads(line) for line in done.stdout.splitlines()]

    def spec(self, process_id: str, *argv: str, **fields: object) -> Answer:
        spec: Answer = {"format": 1, "deployment": "demo", "process_id": process_id, "node": "n1"}
        return {**spec, "digest": "d1", "argv": list(argv), "env": {}, "grace_s": 5.0, **fields}

    def start(self, process_id: str, *argv: str, **fields: object) -> Answer:
        return self.ask("start", process_id, request=self.spec(process_id, *argv, **fields))

    def start_python(self, process_id: str, program: str, **fields: object) -> Answer:
        return self.start(process_id, sys.executable, "-S", "-u", "-c", program, **fields)

    def status(self, process_id: str) -> Answer:
        """The process's entry; empty when the shim knows of no such process."""
        entries = self.ask("status")
        return next((entry for entry in entries if entry["process_id"] == process_id), {})

    def stop(self, *process_ids: str, grace_s: float | None = None) -> list[Answer]:
        request = {"grace_s": dict.fromkeys(process_ids, grace_s)} if grace_s is not None else {}
        return self.ask("stop", *process_ids, request=request)

    def run_dir(self, process_id: str, run: int = 1) -> Path:
        return self.root / "demo" / process_id / f"{run:06}"

    def output(self, process_id: str, run: int = 1) -> str:
        return (self.run_dir(process_id, run) / "output.log").read_text()

    def recorded(self, process_id: str, run: int = 1) -> Answer:
        return json.loads((self.run_dir(process_id, run) / "status.json").read_bytes())

    def wait_for_exit(self, process_id: str) -> Answer:
        return wait_until(lambda: (entry := self.status(process_id))["state"] == "exited" and entry)

    def kill_shim(self, process_id: str) -> None:
        kill(self.recorded(process_id)["shim_pid"])


def is_alive(pid: int) -> bool:
    """A zombie is dead: who ended is not always reaped at once."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def kill(pid: int) -> None:
    """Returns when it has ended: a process that is sent the signal lives on until it is its turn to run."""
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), f"the end of {pid}")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShimNode]:
    made = ShimNode(tmp_path)
    yield made
    left = [
        entry["process_id"] for entry in made.ask("status") if entry["num_alive"] or entry["state"] == "lost"
    ]
    if left:
        assert all(not outcome["survivors"] for outcome in made.stop(*left, grace_s=0))


@pytest.fixture(name="is_alive")
def is_alive_fixture() -> Callable[[int], bool]:
    return is_alive


@pytest.fixture(name="kill")
def kill_fixture() -> Callable[[int], None]:
    return kill
