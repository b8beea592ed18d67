"""`pdctl nodes`."""

from __future__ import annotations

import json


def test_a_node_is_added_listed_and_forgotten(pdctl, monkeypatch):
    monkeypatch.setenv("PDCTL_SITE", "")
    assert pdctl("nodes", "list").out == "no node is remembered as bad\n"
    added = pdctl("nodes", "add", "gpu07", "gpu08", "--why", "link errors", "--hours", "2")
    assert (added.code, added.err) == (0, "")
    listed = json.loads(pdctl("nodes", "list", "--json").out)["nodes"]
    assert [(node["name"], node["why"], node["num_times"]) for node in listed] == [
        ("gpu07", "link errors", 1),
        ("gpu08", "link errors", 1),
    ]
    assert pdctl("nodes", "forget", "gpu07", "gpu08").out == "forgotten: gpu07, gpu08\n"
    assert pdctl("nodes", "list").out == "no node is remembered as bad\n"


def test_the_list_of_a_topology_lies_in_its_run_directory(pdctl, tmp_path, monkeypatch):
    monkeypatch.setenv("PDCTL_SITE", "")
    file = tmp_path / "t.yaml"
    file.write_text(
        "schema: pdctl/v1\nname: demo\nmodel: {path: builtin:x}\nengine: {kind: reference}\n"
        "cluster: {executor: slurm, slurm: {run_dir: shared}}\nprefill: {}\ndecode: {}\n"
    )
    pdctl("nodes", "add", "gpu07", "--why", "fans", "-t", str(file))
    assert (tmp_path / "shared/bad-nodes/gpu07.json").is_file()
    assert pdctl("nodes", "list").out == "no node is remembered as bad\n"
    site = tmp_path / "site.yaml"
    site.write_text(f"schema: pdctl-site/v1\ndefaults: {{run_dir: {tmp_path}/shared}}\n")
    monkeypatch.setenv("PDCTL_SITE", str(site))
    assert "fans" in pdctl("nodes", "list").out


def test_a_mistyped_node_is_told_and_nothing_is_forgotten(pdctl, monkeypatch):
    monkeypatch.setenv("PDCTL_SITE", "")
    pdctl("nodes", "add", "gpu07", "--why", "fans")
    ran = pdctl("nodes", "forget", "gpu70")
    assert ran.code == 1
    assert ran.err.startswith("error[PD537]: `gpu70` is not remembered as bad\n")
    assert "gpu07" in pdctl("nodes", "list").out
