"""Slurm's commands against a real slurmctld and slurmds: what they say, and what they do when it fails."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pdctl.executors.slurm_job.commands import SlurmCommands
from pdctl.executors.slurm_job.faults import SlurmRefusedError, SlurmSilentError
from pdctl.executors.slurm_job.job import Job
from pdctl.executors.slurm_job.refusals import refusal
from pdctl.executors.slurm_job.request import JobRequest, job_request
from pdctl.executors.slurm_job.states import Fate, is_hopeless
from pdctl.topology.load import load_text
from pdctl.topology.model import Topology
from tests.testbed.slurm.cluster import SlurmCluster
from tests.testbed.slurm.spec import SlurmSpec

HEAD = """\
schema: pdctl/v1
name: demo
model: {path: builtin:x}
engine: {kind: reference}
prefill: {}
decode: {}
"""
SLEEP = "exec sleep 4321"


NAMES = (f"demo-{number}" for number in itertools.count())


def topology(
    slurm: str = "{}", cluster: str = "nodes: 2, devices_per_node: 8", name: str = "demo"
) -> Topology:
    head = HEAD.replace("demo", name)
    return load_text(f"{head}cluster: {{executor: slurm, {cluster}, slurm: {slurm}}}\n").require()


@pytest.fixture
def asked() -> Callable[..., JobRequest]:
    """Requests of one name, which no other test has: ended jobs are remembered for a while."""
    name = next(NAMES)

    def ask(slurm: str = "{}", *, token: str = "token-1", **more: str) -> JobRequest:
        return job_request(topology(slurm, name=name, **more), token=token, output="/dev/null")

    return ask


@pytest.fixture
def commands(healed_slurm: SlurmCluster) -> SlurmCommands:
    return SlurmCommands(healed_slurm.environ, 30)


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def write(body: str) -> Path:
        path = tmp_path / "job.sh"
        path.write_text(f"#!/bin/bash\n{body}\n")
        return path

    return write


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    def wait(holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.05)

    return wait


def test_a_job_is_submitted_seen_and_cancelled(asked, commands, script, until, healed_slurm):
    assert commands.find(asked().job_name) == ()
    assert commands.test_only(asked(), script(SLEEP)) is None
    job_id = commands.submit(asked(), script("srun sleep 4321 & wait"))
    until(lambda: commands.job(job_id).fate is Fate.RUNNING)
    (job,) = commands.find(asked().job_name)
    assert (job.id, job.user, job.comment, job.num_nodes) == (job_id, "root", "token-1", 2)
    assert job.limit_s == 36_000  # the partition's
    assert [(node.name, node.address) for node in commands.hosts(job_id)] == [
        (name, healed_slurm.address(name)) for name in ("node1", "node2")
    ]
    until(lambda: len(commands.steps(job_id)) == 2)
    assert {step.id for step in commands.steps(job_id)} == {f"{job_id}.0", f"{job_id}.batch"}
    commands.cancel(job_id)
    until(lambda: commands.job(job_id).fate is Fate.CANCELLED)
    assert commands.steps(job_id) == ()
    commands.cancel(job_id)  # again, which is no fault
    assert [found.fate for found in commands.find(asked().job_name)] == [Fate.CANCELLED]


def test_a_signal_reaches_one_step_or_the_batch_script_alone(asked, commands, script, until, tmp_path):
    told = tmp_path / "told"
    body = (
        f"trap 'echo batch >> {told}; exit 3' TERM\n"
        f'srun --overlap -N1 bash -c \'trap "echo step >> {told}; exit 0" TERM; echo up >> {told};'
        " while :; do sleep 0.1; done' &\nwhile :; do sleep 0.1; done"
    )
    job_id = commands.submit(asked(), script(body))
    until(lambda: told.exists())
    commands.cancel(job_id, signal="TERM", step="0")
    until(lambda: "step" in told.read_text())
    commands.cancel(job_id, signal="TERM", batch_only=True)
    until(lambda: commands.job(job_id).fate is Fate.FAILED)
    assert told.read_text().split() == ["up", "step", "batch"]
    assert commands.job(job_id).exit_code == 3


def test_groups_are_one_job_with_the_nodes_of_all_in_their_order(asked, commands, script, until):
    slurm = "{het_groups: [{nodes: 1, nodelist: [node5], gres: none}, {nodes: 2, nodelist: ['node[1-2]']}]}"
    job_id = commands.submit(asked(slurm, cluster="nodes: 3, devices_per_node: 4"), script(SLEEP))
    until(lambda: commands.job(job_id).fate is Fate.RUNNING)
    (job,) = commands.find(asked().job_name)
    assert (job.id, job.num_nodes) == (job_id, 3)
    assert [node.name for node in commands.hosts(job_id)] == ["node5", "node1", "node2"]


def test_a_job_that_waits_tells_why_and_whether_it_will_ever_run(asked, commands, script, until):
    hopeless = commands.submit(asked(cluster="nodes: 99"), script(SLEEP))
    until(lambda: commands.job(hopeless).reason not in (None, "None"))
    job = commands.job(hopeless)
    assert (job.fate, job.reason, is_hopeless(job.reason)) == (Fate.PENDING, "PartitionConfig", True)
    assert job.nodelist is None
    assert commands.hosts(hopeless) == ()
    held = commands.submit(
        asked("{sbatch_args: [--hold]}", token="token-2", cluster="nodes: 1"), script(SLEEP)
    )
    assert commands.job(held).fate is Fate.HELD
    assert {job.id for job in commands.find(asked().job_name)} == {hopeless, held}


def test_a_job_in_the_queue_has_an_estimated_start(asked, commands, script, until):
    first = commands.submit(asked("{time_limit: 60}", cluster="nodes: 8"), script(SLEEP))
    until(lambda: commands.job(first).fate is Fate.RUNNING)
    second = commands.submit(asked(token="token-2", cluster="nodes: 8"), script(SLEEP))
    until(lambda: commands.estimated_start(second) is not None)
    assert commands.estimated_start(second) >= commands.job(first).ends_at
    assert commands.job(second).reason in ("Resources", "Priority")


def test_a_requeued_job_waits_and_remembers_that_it_ran(asked, commands, script, until, healed_slurm):
    job_id = commands.submit(asked(), script(SLEEP))
    until(lambda: commands.job(job_id).fate is Fate.RUNNING)
    healed_slurm.command("scontrol", "requeue", str(job_id))
    until(lambda: commands.job(job_id).fate is Fate.REQUEUED)
    until(lambda: commands.job(job_id).fate is Fate.RUNNING)
    assert commands.job(job_id).num_restarts == 1


def test_a_job_loses_a_node_and_goes_on_or_ends(asked, commands, script, until, healed_slurm):
    slurm = "{requeue: false, nodelist: ['node[1-2]']}"
    job_id = commands.submit(asked(slurm), script(SLEEP))
    until(lambda: commands.job(job_id).fate is Fate.RUNNING)
    until(lambda: healed_slurm.processes("node1"))
    healed_slurm.lose("node2")
    until(lambda: [node.is_well for node in commands.hosts("node[1-2]")] == [True, False])
    assert commands.job(job_id).fate is Fate.RUNNING  # --no-kill
    assert "lost by a test" in commands.hosts("node2")[0].reason
    healed_slurm.lose("node1")
    until(lambda: commands.job(job_id).fate is Fate.NODE_FAILED)


@pytest.mark.parametrize(
    ("wanted", "cluster", "path"),
    [
        ("{partition: nowhere}", "nodes: 2", "cluster.slurm.partition"),
        ("{}", "nodes: 2, devices_per_node: 9", "cluster.devices_per_node"),
        ("{gres: 'fpga:1'}", "nodes: 2", "cluster.slurm.gres"),
        ("{constraint: moon}", "nodes: 2", "cluster.slurm.constraint"),
        ("{reservation: moon}", "nodes: 2", "cluster.slurm.reservation"),
        ("{exclude: [moon]}", "nodes: 2", "cluster.slurm.exclude"),
        ("{segment: 2}", "nodes: 2", "cluster.slurm.segment"),  # Slurm 22.05 has no such option
        ("{memory: 900G}", "nodes: 2", "cluster.slurm.memory"),
        ("{sbatch_args: [--planet=mars]}", "nodes: 2", "cluster.slurm.sbatch_args.0"),
    ],
)
def test_a_job_that_slurm_refuses_is_told_at_its_place(commands, script, wanted, cluster, path):
    document = topology(wanted, cluster)
    request = job_request(document, token="t", output="/dev/null")
    with pytest.raises(SlurmRefusedError) as caught:
        commands.submit(request, script(SLEEP))
    (told,) = refusal(caught.value, document).diagnostics
    assert (told.code, told.path) == ("PD532", path)
    assert not any(job.fate.waits or job.nodelist for job in commands.find("pdctl-demo"))
    assert commands.test_only(request, script(SLEEP)) is not None


def test_a_site_that_refuses_what_no_partition_allows_says_so_at_once(make_slurm, script):
    strict = make_slurm(SlurmSpec(num_nodes=2, gpus=0, max_time_minutes=60, refuses_beyond_limits=True))
    commands = SlurmCommands(strict.environ, 30)
    for wanted, cluster, path in (
        ("{time_limit: '2:00:00'}", "nodes: 2", "cluster.slurm.time_limit"),
        ("{}", "nodes: 3", "cluster.nodes"),
    ):
        document = topology(wanted, cluster)
        with pytest.raises(SlurmRefusedError) as caught:
            commands.submit(job_request(document, token="t", output="/dev/null"), script(SLEEP))
        assert refusal(caught.value, document).diagnostics[0].path == path


def test_a_hung_controller_that_takes_a_job_late_has_it_once(asked, commands, script, healed_slurm):
    """Seen with sbatch alone: it fails with `Socket timed out`, and the job appears after all."""
    stopping = _Stopping(healed_slurm, is_killed=False)
    job_id = stopping.submit(asked(), script(SLEEP))
    assert stopping.num_looks > 1
    assert healed_slurm.jobs().keys() == {job_id}
    assert commands.job(job_id).comment == "token-1"


def test_a_controller_that_dies_while_it_is_asked_gets_the_job_once_it_is_back(asked, script, healed_slurm):
    stopping = _Stopping(healed_slurm, is_killed=True)
    job_id = stopping.submit(asked(), script(SLEEP))
    assert stopping.num_looks > 1
    assert healed_slurm.jobs().keys() == {job_id}


def test_no_answer_is_never_taken_for_an_absent_job(asked, commands, script, healed_slurm):
    job_id = commands.submit(asked(), script(SLEEP))
    healed_slurm.kill_controller()
    assert not commands.ping()
    for ask in (lambda: commands.find(asked().job_name), lambda: commands.submit(asked(), script(SLEEP))):
        with pytest.raises(SlurmSilentError) as caught:
            ask()
        assert caught.value.diagnostics[0].code == "PD533"
    impatient = SlurmCommands(healed_slurm.environ, 0.5)
    with pytest.raises(SlurmSilentError):
        impatient.job(job_id)
    healed_slurm.start_controller()
    assert commands.ping()
    assert healed_slurm.jobs().keys() == {job_id}


def test_a_job_that_slurm_has_forgotten_is_none_where_nobody_keeps_accounts(commands):
    assert commands.job(987_654) is None
    assert commands.steps(987_654) == ()
    assert commands.estimated_start(987_654) is None
    commands.cancel(987_654)


def test_banners_warnings_and_columns_of_other_releases_change_nothing(
    asked, healed_slurm, script, tmp_path, until
):
    """Sites wrap Slurm's commands, and releases add to what they print."""
    wrappers = {
        "sbatch": 'echo "sbatch: warning: low quota" >&2\necho "Welcome to helios!"\nexec {real} "$@"',
        "squeue": 'echo "squeue: warning: 3 of 4" >&2\n{real} "$@" | sed "s/$/\\x1fmars/"',
        "scontrol": '{real} "$@" | sed "s/ JobState=/ Planet=mars two words JobState=/; s/^NodeName/&/"',
    }
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body in wrappers.items():
        file = folder / name
        file.write_text("#!/bin/bash\n" + body.format(real=f"/usr/bin/{name}") + "\n")
        file.chmod(0o755)
    environ = {**healed_slurm.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    habits = {"SQUEUE_FORMAT": "%i", "SLURM_TIME_FORMAT": "relative", "SQUEUE_STATES": "PD"}
    commands = SlurmCommands({**environ, **habits, "SBATCH_PARTITION": "urgent"}, 30)
    job_id = commands.submit(asked("{partition: main}"), script("srun sleep 4321 & wait"))
    until(lambda: commands.job(job_id).fate is Fate.RUNNING)
    (job,) = commands.find(asked().job_name)
    assert (job.id, job.num_nodes) == (job_id, 2)
    assert job.started_at is not None
    until(lambda: f"{job_id}.0" in {step.id for step in commands.steps(job_id)})
    assert [node.name for node in commands.hosts(job_id)] == ["node1", "node2"]
    assert "Partition=main" in healed_slurm.command("scontrol", "show", "job", str(job_id))


class _Stopping(SlurmCommands):
    """After the first look for jobs, before the submission, the controller hangs or is gone for a while."""

    def __init__(self, slurm: SlurmCluster, *, is_killed: bool) -> None:
        super().__init__(slurm.environ, 30)
        self.num_looks = 0
        self._break = slurm.kill_controller if is_killed else slurm.stop_controller
        # Longer than `sbatch` waits for it.
        mend, after_s = (slurm.start_controller, 10) if is_killed else (slurm.continue_controller, 7)
        self._timer = threading.Timer(after_s, mend)

    def find(self, job_name: str) -> tuple[Job, ...]:
        found = super().find(job_name)
        self.num_looks += 1
        if self.num_looks == 1:
            self._break()
            self._timer.start()
        return found
