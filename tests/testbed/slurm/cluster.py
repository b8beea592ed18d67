"""A real Slurm on this machine: slurmctld, munged and a slurmd for each virtual node, under one folder.

    with new_cluster(base, SlurmSpec(num_nodes=8)) as slurm:
        slurm.command("srun", "-N8", "hostname")
        slurm.power_off("node3")

All commands find it by `slurm.environ` (SLURM_CONF). Each node has a loopback address, `slurm.address(node)`.
Nodes share this machine's disk and its processes; so batch scripts and steps know where they are only by
SLURMD_NODENAME. Needs root on Linux, and the packages in `DEBIAN_PACKAGES`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.slurm import daemons
from tests.testbed.slurm.claim import CLAIMS, MAX_NODES, Claim, claim
from tests.testbed.slurm.spec import SlurmSpec, write_config

DEBIAN_PACKAGES = ("munge", "slurm-client", "slurmctld", "slurmd")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
_DEADLINE_S = 180.0  # a node that lost its controller completes a job only after several of its time-outs


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmCluster:
    base: Path
    claim: Claim
    spec: SlurmSpec

    @property
    def environ(self) -> dict[str, str]:
        return daemons.environment(self.base)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(f"node{index}" for index in range(1, self.spec.num_nodes + 1))

    def address(self, node: str) -> str:
        return self.claim.node_address(int(node.removeprefix("node")))

    def command(self, *argv: str | Path, cwd: Path | None = None) -> str:
        """What a command of Slurm prints. AssertionError when it fails."""
        done = self.try_command(*argv, cwd=cwd)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def try_command(self, *argv: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in argv],
            env=self.environ,
            cwd=cwd or self.base,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )

    def jobs(self) -> dict[int, str]:
        """Raw state by id, without the jobs that have ended."""
        lines = self.command("squeue", "-h", "-o", "%A %T").splitlines()
        return {int(job): state for job, state in (line.split() for line in lines)}

    def job_state(self, job_id: int) -> str:
        """Raw state, also of a job that ended less than `min_job_age_s` ago."""
        shown = self.command("scontrol", "-o", "show", "job", str(job_id))
        return shown.partition(" JobState=")[2].split()[0]

    def node_states(self) -> dict[str, str]:
        """Short and raw, such as `idle`, `mix`, `down*`."""
        lines = self.command("sinfo", "-h", "-N", "-p", "main", "-o", "%N %t").splitlines()
        return dict(line.split() for line in lines)

    def processes(self, node: str | None = None) -> list[int]:
        """Of the whole cluster, daemons included; or what jobs have on one node."""
        return list(daemons.processes(self.base) if node is None else daemons.tasks(self.base, node))

    # Faults, and how each is mended.

    def kill_slurmd(self, node: str) -> None:
        """Steps and tasks live on without it."""
        pid = daemons.daemon(self.base, f"slurmd-{node}")
        daemons.kill(iter([] if pid is None else [pid]))

    def start_slurmd(self, node: str) -> None:
        daemons.start_slurmd(self.base, node)

    def power_off(self, node: str) -> None:
        """slurmd, steps and tasks of a node are gone at once; Slurm notices by `slurmd_timeout_s`."""
        self.kill_slurmd(node)
        while found := self.processes(node):
            daemons.kill(iter(found))

    def lose(self, node: str) -> None:
        """Power off, and Slurm knows at once: what it does to jobs is what it does after a time-out."""
        self.power_off(node)
        self.command("scontrol", "update", f"nodename={node}", "state=down", "reason=lost by a test")

    def stop_controller(self) -> None:
        """It hangs: commands get no answer, and what they asked for happens after `continue_controller`."""
        self._signal_controller(signal.SIGSTOP)

    def continue_controller(self) -> None:
        self._signal_controller(signal.SIGCONT)

    def kill_controller(self) -> None:
        """It is gone: commands are refused, jobs run on. It saves what it knows, as every few seconds:
        after a real crash, jobs that had just been submitted would be unknown.
        """
        daemons.end_controller(self.base)

    def start_controller(self) -> None:
        daemons.start_controller(self.base)
        self._wait(lambda: "is UP" in self.try_command("scontrol", "ping").stdout, "slurmctld to answer")
        for node in self.nodes:  # each registers anew at once, rather than when it is asked
            if (pid := daemons.daemon(self.base, f"slurmd-{node}")) is not None:
                os.kill(pid, signal.SIGHUP)

    def drain(self, node: str, reason: str = "drained by a test") -> None:
        self.command("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def resume(self, node: str) -> None:
        self.command("scontrol", "update", f"nodename={node}", "state=resume")

    def heal(self) -> None:
        """No job is left, and every node is idle, whatever a test has done."""
        if daemons.daemon(self.base, "slurmctld") is None:
            self.start_controller()
        self.continue_controller()
        self._wait(self._is_without_jobs, "jobs to end")
        for node in self.nodes:
            if daemons.daemon(self.base, f"slurmd-{node}") is None:
                self.start_slurmd(node)
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        self._wait(self._are_all_idle, "all nodes to be idle")

    def wait_for_job(self, job_id: int, *states: str) -> str:
        """The state that a job has come to, one of those given."""
        self._wait(lambda: self.job_state(job_id) in states, f"job {job_id} to be {' or '.join(states)}")
        return self.job_state(job_id)

    def _is_without_jobs(self) -> bool:
        jobs = self.jobs()
        if jobs:
            self.try_command("scancel", "--quiet", *map(str, jobs))
            for node in self.nodes:
                self._end_orphans(node)
        return not jobs

    def _end_orphans(self, node: str) -> None:
        """Nobody is left to end what runs on a node without slurmd, and a job there would never be over."""
        if daemons.daemon(self.base, f"slurmd-{node}") is None:
            self.power_off(node)
            self.start_slurmd(node)

    def _are_all_idle(self) -> bool:
        states = self.node_states()
        for node, state in states.items():
            if state.rstrip("*") in ("down", "drain", "fail", "drng"):
                self.try_command("scontrol", "update", f"nodename={node}", "state=resume")
        return set(states) == set(self.nodes) and set(states.values()) == {"idle"}

    def _signal_controller(self, number: signal.Signals) -> None:
        pid = daemons.daemon(self.base, "slurmctld")
        assert pid is not None, "no slurmctld runs"
        os.kill(pid, number)

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not holds():
            if time.monotonic() > deadline:
                seen = [self.try_command("squeue").stdout, self.try_command("sinfo", "-N", "-l").stdout]
                raise AssertionError("\n".join([f"waited in vain for {what}", *seen]))
            time.sleep(0.05)


def missing_programs() -> list[str]:
    return [each for each in _PROGRAMS if shutil.which(each) is None]


@contextlib.contextmanager
def new_cluster(base: Path, spec: SlurmSpec | None = None) -> Iterator[SlurmCluster]:
    """A cluster for as long as the context lasts, or until another is made after this process was killed."""
    cluster = up(base, spec or SlurmSpec(), is_kept=False)
    try:
        yield cluster
    finally:
        down(base)


def up(base: Path, spec: SlurmSpec, *, is_kept: bool) -> SlurmCluster:
    """A cluster with all nodes idle; what was at `base` before goes first. A kept one lasts until `down`."""
    assert 1 <= spec.num_nodes <= MAX_NODES
    down(base)
    for number, left_at in CLAIMS.abandoned():
        _take_down(number, left_at)
    made = claim(base, is_kept=is_kept)
    cluster = SlurmCluster(base=base, claim=made, spec=spec)
    try:
        write_config(spec, made, base)
        daemons.start_munged(made, base)
        cluster.start_controller()
        for node in cluster.nodes:
            cluster.start_slurmd(node)
        cluster.wait_until_idle()
    except BaseException:
        _take_down(made.number, base)
        raise
    return cluster


def down(base: Path) -> None:
    """No process of the cluster at `base` is left, and its number is free; its logs stay."""
    for number in CLAIMS.at(base):
        _take_down(number, base)


def _take_down(number: int, base: Path) -> None:
    daemons.kill_all(base)
    # What a later cluster at this place would take for its own past.
    for name in ("state", "spool", "run"):
        shutil.rmtree(base / name, ignore_errors=True)
    CLAIMS.give_back(number)
