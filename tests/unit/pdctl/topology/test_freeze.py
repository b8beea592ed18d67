"""A frozen topology says what the original said, wherever and whenever it is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.executors.slurm_job.site import settled
from pdctl.resources import resource_path
from pdctl.topology.anchor import anchored
from pdctl.topology.freeze import frozen
from pdctl.topology.load import load, load_text
from pdctl.topology.model import Topology
from pdctl.topology.slurm import Slurm

SHIPPED = sorted(path.name for path in Path(str(resource_path("topologies"))).glob("*.yaml"))


def frozen_text(document: str, file: str = "t.yaml", **environ: str) -> tuple[Topology, str]:
    loaded = load_text(document, file=file, environ=environ)
    topology = anchored(loaded.require(), file)
    return topology, frozen(loaded.document, topology)


def thawed(text: str) -> Topology:
    return anchored(load_text(text, file="/elsewhere/topology.json", environ={}).require(), "/elsewhere/t")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_topologies_come_back_as_they_were(name: str):
    environ = {"SGLANG_MODEL": "/models/m", "SGLANG_PYTHON": "/opt/v/bin/python"}
    loaded = load(str(resource_path("topologies", name)), environ=environ)
    topology = anchored(loaded.require(), str(resource_path("topologies", name)))
    assert thawed(frozen(loaded.document, topology)) == topology


def test_the_environment_of_the_day_of_the_submission_counts(document: str):
    topology, text = frozen_text(document.replace("{instances: 2}", "\n  instances: ${COUNT}"), COUNT="3")
    assert topology.decode.instances == 3
    assert thawed(text) == topology


def test_a_word_that_only_looks_like_a_reference_stays_a_word(document: str):
    written = document.replace("instances: 2", "instances: 2, env: {A: 'x$${B}', C: '$$$${D}'}")
    topology, text = frozen_text(written)
    assert topology.decode.env["A"] == "x${B}"
    assert thawed(text).decode.env == topology.decode.env


def test_words_keep_their_type(document: str):
    words = """{a: "1", b: 'on', c: 1, d: 0.00001, e: "1e-05", f: true, g: "\\u2603 \\U0001F600\\t\\"x\\""}"""
    topology, text = frozen_text(document.replace("instances: 2", f"instances: 2, args: {words}"))
    assert thawed(text).decode.args == topology.decode.args


def test_relative_paths_become_absolute_ones(document: str):
    written = document + "cluster: {executor: slurm, slurm: {run_dir: runs, site: ../site.yaml}}\n"
    topology, text = frozen_text(written.replace("path: none", "path: ./model"), file="/srv/bench/t.yaml")
    slurm = thawed(text).cluster.slurm
    assert slurm is not None
    assert slurm.run_dir == "/srv/bench/runs"
    assert topology.cluster.slurm is not None
    assert slurm == replace(topology.cluster.slurm, site="none")


def test_what_the_site_has_added_is_carried_and_not_added_again(document: str, tmp_path: Path):
    site = tmp_path / "site.yaml"
    site.write_text(
        "schema: pdctl-site/v1\ndefaults: {partition: gpu, sbatch_args: [--nice=5], requeue: false}\n"
        "gpus: gres\n"
    )
    written = document + "cluster: {executor: slurm, devices_per_node: 8}\n"
    loaded = load_text(written, file="t.yaml", environ={})
    environ = {"PDCTL_SITE": str(site)}
    at_site = settled(anchored(loaded.require(), "t.yaml"), environ).topology
    again = settled(thawed(frozen(loaded.document, at_site)), environ).topology.cluster.slurm
    assert again == Slurm(
        partition="gpu", sbatch_args=("--nice=5",), requeue=False, gres="gpu:8", site="none"
    )


def test_what_is_the_users_own_is_not_carried_along(document: str):
    assert "s3cret" not in frozen_text(document + "x-notes: {key: s3cret}\n")[1]
