"""What is asked of Slurm, in words and in lines."""

from __future__ import annotations

import pytest

from pdctl.executors.slurm_job.request import OWNED_OPTIONS, job_request
from pdctl.topology.load import load_text
from pdctl.topology.slurm import Slurm

HEAD = """\
schema: pdctl/v1
name: demo
model: {path: builtin:x}
engine: {kind: reference}
prefill: {}
decode: {}
"""


def topology(cluster: str):
    return load_text(f"{HEAD}cluster: {{executor: slurm, {cluster}}}\n").require()


def asked(cluster: str, **more) -> list[str]:
    return job_request(topology(cluster), token="t", **more).argv()


def test_a_silent_topology_asks_for_whole_nodes_and_all_their_accelerators():
    assert asked("nodes: 13, devices_per_node: 8") == [
        "--job-name=pdctl-demo",
        "--comment=t",
        "--signal=B:TERM@50",
        "--nodes=13",
        "--exclusive",
        "--gpus-per-node=8",
        "--requeue",
        "--no-kill",
    ]


def test_all_that_a_topology_says_is_asked_for():
    slurm = (
        "slurm: {job_name: mine, partition: gpu, account: llm, qos: high, time_limit: '04:00:00',"
        " reservation: r, constraint: 'a&b', exclude: ['n[1-2]', n9], nodelist: [n4], exclusive: false,"
        " cpus_per_node: 64, memory: 0, gres: 'gpu:h100:8', segment: 4, switches: 1, requeue: false,"
        " no_kill: false, signal_lead_s: 120, sbatch_args: [--mail-type=END, --contiguous]}"
    )
    assert asked(f"nodes: 4, devices_per_node: 8, {slurm}", output="/x/batch-%j.log", bad_nodes=("n7",)) == [
        "--job-name=mine",
        "--comment=t",
        "--output=/x/batch-%j.log",
        "--open-mode=append",
        "--signal=B:TERM@120",
        "--nodes=4",
        "--partition=gpu",
        "--account=llm",
        "--qos=high",
        "--time=04:00:00",
        "--reservation=r",
        "--constraint=a&b",
        "--nodelist=n4",
        "--exclude=n[1-2],n9,n7",
        "--cpus-per-task=64",
        "--mem=0",
        "--gres=gpu:h100:8",
        "--segment=4",
        "--switches=1",
        "--no-requeue",
        "--mail-type=END",
        "--contiguous",
    ]


def test_groups_are_components_and_only_the_first_is_told_of_the_end():
    slurm = "slurm: {partition: main, het_groups: [{nodes: 1, gres: none}, {nodes: 2, partition: big}]}"
    request = job_request(topology(f"nodes: 3, devices_per_node: 8, {slurm}"), token="t o")
    first, second = request.groups
    assert ("signal", "B:TERM@50") in first
    assert "signal" not in dict(second)
    assert dict(first)["partition"] == "main"
    assert dict(second)["partition"] == "big"
    assert "gpus-per-node" not in dict(first)
    assert dict(second)["gpus-per-node"] == "8"
    assert request.argv().count(":") == 1
    lines = request.directives()
    assert lines[1] == '#SBATCH "--comment=t o"'
    assert lines.index("#SBATCH hetjob") == len(first)


def test_nodes_with_names_are_asked_for_by_them():
    assert "--nodelist=n1,n2" in asked("nodes: [{name: n1}, {name: n2}]")


@pytest.mark.parametrize(
    ("slurm", "is_whole"),
    [
        ("{}", True),
        ("{memory: 10G}", False),
        ("{cpus_per_node: 4}", False),
        ("{memory: 10G, exclusive: true}", True),
    ],
)
def test_nodes_come_whole_unless_a_part_is_asked_for(slurm, is_whole):
    assert ("--exclusive" in asked(f"nodes: 1, slurm: {slurm}")) is is_whole


def test_every_option_that_is_asked_for_is_refused_as_an_argument():
    cluster = (
        "nodes: 1, devices_per_node: 8, slurm: {partition: p, account: a, qos: q, time_limit: 9,"
        " reservation: r, constraint: c, exclude: [n1], nodelist: [n2], cpus_per_node: 1, memory: 1,"
        " exclusive: true, segment: 1, switches: 1}"
    )
    (group,) = job_request(topology(cluster), token="t", output="o").groups
    assert {key for key, _ in group} <= set(OWNED_OPTIONS)
    assert {field for field in OWNED_OPTIONS.values() if field} <= set(Slurm.__slots__)
