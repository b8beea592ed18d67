"""Relative paths of models and of SSH files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.topology.anchor import anchored
from pdctl.topology.load import load

DOCUMENT = """\
schema: pdctl/v1
name: demo
model: {{path: {}}}
engine: {{kind: reference}}
prefill: {{}}
decode: {{}}
"""


@pytest.fixture
def model_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The model's path of a document in `files/`, read from `desk/`, with `home/` as home."""
    for folder in ("files", "desk", "home"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "desk")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    file = tmp_path / "files" / "t.yaml"

    def read(written: str, *sets: str) -> str:
        file.write_text(DOCUMENT.format(written))
        topology = load("../files/t.yaml", environ={}, sets=sets).require()
        path = anchored(topology, "../files/t.yaml").model.path
        return path.replace(str(tmp_path), "")

    return read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("./m", "/files/m"),
        ("../m", "/m"),
        ("~/m", "/home/m"),
        ("/abs/m", "/abs/m"),
        ("org/name", "org/name"),
        ("builtin:tiny", "builtin:tiny"),
    ],
)
def test_a_path_counts_from_the_folder_of_its_file(model_path, written, read):
    assert model_path(written) == read


def test_a_path_that_was_typed_counts_from_the_working_directory(model_path):
    assert model_path("/abs/m", "model.path=./m") == "/desk/m"


SSH = """\
cluster:
  executor: ssh
  ssh: {config: ssh_config, known_hosts: ../known_hosts, identity_file: ~/.ssh/id}
  nodes: [{name: a, ssh: {identity_file: ./id_a}}, {name: b}]
"""


def test_ssh_files_count_from_the_folder_of_their_file_and_home_is_the_readers(tmp_path: Path):
    file = tmp_path / "t.yaml"
    file.write_text(DOCUMENT.format("m") + SSH)
    cluster = anchored(load(str(file), environ={}).require(), str(file)).cluster
    assert cluster.ssh is not None
    assert not isinstance(cluster.nodes, int)
    assert cluster.ssh.config == str(tmp_path / "ssh_config")
    assert cluster.ssh.known_hosts == str(tmp_path.parent / "known_hosts")
    assert cluster.ssh.identity_file == "~/.ssh/id"
    assert [host.ssh.identity_file for host in cluster.nodes] == [str(tmp_path / "id_a"), None]


def test_the_operators_own_ssh_configuration_is_the_default_by_its_name(tmp_path: Path):
    file = tmp_path / "t.yaml"
    file.write_text(
        DOCUMENT.format("/m")
        + "cluster: {executor: ssh, ssh: {config: ~/.ssh/config}, nodes: [{name: n1}]}\n"
    )
    ssh = anchored(load(str(file), environ={}).require(), str(file)).cluster.ssh
    assert ssh is not None
    assert ssh.config is None
