"""Topologies at sites that want and refuse different things."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.executors.slurm_job.request import job_request
from pdctl.executors.slurm_job.site import settled, site_file
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


@pytest.fixture
def at_site(tmp_path: Path):
    """`at_site(profile, slurm)` gives the options that are asked for, and the messages against it."""

    def ask(profile: str, slurm: str = "{}", cluster: str = "nodes: 2, devices_per_node: 8"):
        file = tmp_path / "site.yaml"
        file.write_text(f"schema: pdctl-site/v1\n{profile}\n")
        topology = load_text(f"{HEAD}cluster: {{executor: slurm, {cluster}, slurm: {slurm}}}\n").require()
        found = settled(topology, {"PDCTL_SITE": str(file)})
        request = job_request(found.topology, token="t")
        assert found.topology.cluster.slurm is not None
        assert found.topology.cluster.slurm.site == str(file)
        options = dict(request.groups[0])
        return options, [each.message for each in found.diagnostics]

    return ask


def test_the_topology_has_the_last_word_over_defaults_and_lists_are_joined(at_site):
    profile = "defaults: {partition: gpu, account: llm, requeue: false, exclude: [n1], sbatch_args: [--nice]}"
    options, faults = at_site(profile, "{partition: big, exclude: [n2], sbatch_args: [--contiguous]}")
    assert faults == []
    assert (options["partition"], options["account"], options["exclude"]) == ("big", "llm", "n1,n2")
    assert {"no-requeue", "nice", "contiguous"} <= set(options)
    assert "requeue" in at_site(profile, "{requeue: true}")[0]


@pytest.mark.parametrize(
    ("profile", "wanted"),
    [
        ("gpus: gres", {"gres": "gpu:8"}),
        ("gpus: gres\ngpu_type: h100", {"gres": "gpu:h100:8"}),
        ("gpu_type: h100", {"gpus-per-node": "h100:8"}),
        ("gpus: none", {}),
        ("refuses: [gpus_per_node]", {"gres": "gpu:8"}),
        ("refuses: [gpus_per_node, gres]", {}),
    ],
)
def test_accelerators_are_asked_for_in_the_way_of_the_site(at_site, profile, wanted):
    options, faults = at_site(profile)
    assert {key: options[key] for key in ("gres", "gpus-per-node") if key in options} == wanted
    assert faults == []


def test_groups_ask_for_their_own_accelerators_in_the_way_of_the_site(at_site):
    slurm = "{het_groups: [{nodes: 1, devices_per_node: 4}, {nodes: 1}]}"
    assert at_site("gpus: gres", slurm)[0]["gres"] == "gpu:4"


def test_what_a_silent_topology_asks_for_is_left_out_where_it_is_refused(at_site):
    options, faults = at_site("refuses: [exclusive, no_kill, requeue]")
    assert faults == []
    assert {"exclusive", "no-kill", "requeue"} & set(options) == set()


def test_what_the_topology_says_against_the_site_is_told_with_all_else(at_site):
    _, faults = at_site(
        "name: helios\nrefuses: [segment, switches]\nrequires: [account, exclusive, time_limit]",
        "{segment: 2, exclusive: false, time_limit: 60}",
    )
    assert faults == [
        "helios refuses `segment`",
        "helios takes no job without `account`",
        "helios takes only jobs that have nodes whole",
    ]


def test_other_executors_have_no_site():
    topology = load_text(HEAD).require()
    assert settled(topology, {"PDCTL_SITE": "/nowhere"}).topology is topology


def test_a_profile_that_is_named_and_absent_is_a_fault():
    topology = load_text(f"{HEAD}cluster: {{executor: slurm}}\n").require()
    assert [each.code for each in settled(topology, {"PDCTL_SITE": "/nowhere.yaml"}).diagnostics] == ["PD101"]
    assert settled(topology, {"PDCTL_SITE": ""}).diagnostics == ()


def test_a_profile_is_found_where_it_is_named_first(tmp_path):
    own = tmp_path / "pdctl/site.yaml"
    own.parent.mkdir()
    own.touch()
    config = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert site_file(Slurm(), config) == str(own)
    assert site_file(Slurm(), {**config, "PDCTL_SITE": "/b"}) == "/b"
    assert site_file(Slurm(site="/a"), {**config, "PDCTL_SITE": "/b"}) == "/a"
