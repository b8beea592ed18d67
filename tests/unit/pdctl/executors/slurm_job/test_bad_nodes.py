"""Nodes that are remembered, and when they are forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.slurm_job.bad_nodes import KEPT_S, MAX_KEPT_S, BadNodes, bad_nodes_of
from pdctl.topology.slurm import Slurm

NOW = 1_800_000_000.0


@pytest.fixture
def nodes(tmp_path: Path) -> BadNodes:
    return BadNodes(tmp_path)


def test_a_node_is_on_the_list_for_a_day_with_its_evidence(nodes):
    nodes.remember("gpu07", "it stopped answering", now=NOW, deployment="demo", job_id=7)
    (node,) = nodes.all(NOW + KEPT_S - 1)
    assert (node.name, node.why, node.deployment, node.job_id) == ("gpu07", "it stopped answering", "demo", 7)
    assert nodes.names(NOW + KEPT_S + 1) == ()


def test_each_failure_more_keeps_a_node_longer_up_to_a_week(nodes):
    for number in range(1, 10):
        node = nodes.remember("gpu07", "again", now=NOW, job_id=number)
        assert node.num_times == number
        assert node.expires_at == NOW + min(number * KEPT_S, MAX_KEPT_S)


def test_one_job_that_tells_it_twice_has_seen_one_failure(nodes):
    nodes.remember("gpu07", "silent", now=NOW, job_id=7)
    assert nodes.remember("gpu07", "gone", now=NOW + 5, job_id=7).num_times == 1


def test_an_operator_says_how_long_and_what_is_forgotten(nodes):
    nodes.remember("gpu07", "fans", now=NOW, kept_s=60)
    nodes.remember("gpu08", "fans", now=NOW)
    assert nodes.names(NOW + 61) == ("gpu08",)
    nodes.forget(["gpu08"])
    assert nodes.names(NOW) == ("gpu07",)


def test_who_forgets_a_node_that_is_not_listed_changes_nothing(nodes):
    nodes.remember("gpu07", "fans", now=NOW)
    with pytest.raises(DiagnosticError) as caught:
        nodes.forget(["gpu07", "gpu70", "../gpu07"])
    assert [each.message for each in caught.value.diagnostics] == [
        "`gpu70` is not remembered as bad",
        "`../gpu07` is not remembered as bad",
    ]
    assert nodes.names(NOW) == ("gpu07",)


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "-n", "a b", "gpu[1-2]"])
def test_what_can_be_no_node_is_refused(nodes, name):
    with pytest.raises(DiagnosticError):
        nodes.remember(name, "why", now=NOW)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"name": 3}', b"\xff"])
def test_a_damaged_record_still_keeps_its_node_away(nodes, tmp_path, content):
    nodes.remember("gpu07", "fans", now=NOW)
    (tmp_path / "bad-nodes/gpu07.json").write_bytes(content)
    assert nodes.names(NOW) == ("gpu07",)
    nodes.forget(["gpu07"])
    assert nodes.names(NOW) == ()


def test_the_list_lies_in_the_run_directory(tmp_path):
    bad_nodes_of(Slurm(run_dir=str(tmp_path)), {}).remember("n1", "x", now=NOW)
    assert BadNodes(tmp_path).names(NOW) == ("n1",)
    bad_nodes_of(None, {"PDCTL_STATE_DIR": str(tmp_path / "s")}).remember("n2", "x", now=NOW)
    assert BadNodes(tmp_path / "s/slurm").names(NOW) == ("n2",)
