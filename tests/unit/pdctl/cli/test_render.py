"""`pdctl render`: its forms, and where scripts go."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Pdctl = Callable[..., Any]
TOPOLOGY = "topologies/deepseek_v3_2p2d.yaml"


def test_scripts_go_to_a_folder_and_their_paths_to_stdout(pdctl: Pdctl, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "scripts"
    ran = pdctl("render", TOPOLOGY, "--as", "shell", "-o", str(folder))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [str(folder / f"node-{number}.sh") for number in (1, 2, 3, 4)]
    assert all(os.access(path, os.X_OK) for path in ran.out.splitlines())


def test_without_a_folder_they_go_to_stdout(pdctl: Pdctl) -> None:
    ran = pdctl("render", TOPOLOGY)
    assert ran.out.startswith("#!/usr/bin/env bash\n")
    assert ran.out.count("#!/usr/bin/env bash\n") == 4


def test_as_json_they_are_a_mapping(pdctl: Pdctl) -> None:
    scripts = json.loads(pdctl("render", TOPOLOGY, "--json").out)
    assert list(scripts) == ["node-1.sh", "node-2.sh", "node-3.sh", "node-4.sh"]


def test_a_folder_that_cannot_be_written_is_a_fault(pdctl: Pdctl, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    ran = pdctl("render", TOPOLOGY, "-o", str(tmp_path / "taken"))
    assert ran.code == 1
    assert ran.err.startswith("error[PD509]: can't write ")


def test_a_batch_script_for_slurm_is_one_file(pdctl: Pdctl, tmp_path: Path) -> None:
    ran = pdctl("render", "topologies/deepseek_v3.yaml", "--as", "sbatch", "-o", str(tmp_path))
    assert (ran.code, ran.out) == (0, f"{tmp_path}/deepseek-v3.sbatch\n")
    text = (tmp_path / "deepseek-v3.sbatch").read_text(encoding="utf-8")
    assert text.startswith("#!/bin/bash\n#SBATCH --job-name=pdctl-deepseek-v3\n")
    assert text.endswith("\n}\n\nmain\n")


def test_only_a_topology_for_slurm_becomes_a_batch_script(pdctl: Pdctl) -> None:
    ran = pdctl("render", TOPOLOGY, "--as", "sbatch")
    assert ran.code == 1
    assert ran.err.startswith("error[PD549]: a batch script for Slurm needs `executor: slurm`, not `ssh`\n")
