"""Operators at the hosts of the testbed: with `pdctl`, or with plain `ssh` as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testbed.hosts import snapshot
from tests.testbed.hosts.host import Host
from tests.testbed.hosts.host_set import HostSet

TREE = Path(__file__).parents[3]
ENGINE = TREE / "tests/e2e/pdctl"  # the folder of the dummy engine, which hosts see at the same path


@dataclass(frozen=True)
class Operator:
    """Somebody with a state directory of their own."""

    folder: Path
    environ: dict[str, str]

    def pdctl(self, *words: str | Path, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "pdctl", *map(str, words)],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + (done.stderr if code else "")

    def begin(self, *words: str | Path) -> subprocess.Popen[bytes]:
        """Start `pdctl` and go on; its output goes to `pdctl.out`, diagnostics too."""
        with (self.folder / "pdctl.out").open("wb") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "pdctl", *map(str, words)],
                cwd=self.folder,
                env=self.environ,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        return (self.folder / "pdctl.out").read_text()

    def states(self, target: str | Path) -> dict[str, str]:
        (status,) = json.loads(self.pdctl("status", target, "--json"))["deployments"]
        return {process["id"]: process["phase"] for process in status["processes"]}


@pytest.fixture
def ssh() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`ssh(hosts, host, command)` gives what `ssh host command` gave."""

    def run(hosts, host: Host, command: str) -> subprocess.CompletedProcess[str]:
        words = ["ssh", "-n", "-o", "BatchMode=yes", "-F", hosts.ssh_config, host.name, command]
        return subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)

    return run


@pytest.fixture
def operator(tmp_path: Path, hosts: HostSet) -> Iterator[Callable[[str], Operator]]:
    """`operator("ada")` at the `hosts` of the test's own file, which are healed after the test."""
    site = tmp_path / "site"
    metadata = site / "dummy_engine-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: dummy-engine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[pdctl.engines]\ndummy = dummy_engine\n")

    def named(name: str) -> Operator:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        environ = {key: value for key, value in os.environ.items() if not key.startswith("PDCTL_")}
        paths = os.pathsep.join(map(str, (site, ENGINE, TREE)))
        return Operator(
            folder,
            {**environ, "PYTHONPATH": paths, "PDCTL_STATE_DIR": str(folder / "state"), "NO_COLOR": "1"},
        )

    yield named
    for host in hosts:
        host.heal()


@pytest.fixture
def wait_until() -> Callable[[Callable[[], object], str], None]:
    """Look again and again, so that a moment which passes quickly is met."""

    def wait(holds: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < deadline, f"in vain: {what}"
            time.sleep(0.002)

    return wait


@pytest.fixture
def left_behind(hosts: HostSet) -> Callable[[], list[str]]:
    """`left_behind()` tells what is not as it was on the `hosts` when the test began."""
    before = {host.name: snapshot.take(host) for host in hosts}

    def differences() -> list[str]:
        return [
            f"{host.name}: {line}"
            for host in hosts
            for line in before[host.name].differences(snapshot.take(host))
        ]

    def settled() -> list[str]:
        """A command's login shell ends a moment after its answer has come."""
        deadline = time.monotonic() + 15
        while (found := differences()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    return settled
