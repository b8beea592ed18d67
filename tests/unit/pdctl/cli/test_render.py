"""`pdctl render`, and what executors that can only be planned for allow."""

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


def test_an_executor_that_is_not_there_yet_is_said_before_anything_starts(pdctl: Pdctl) -> None:
    ran = pdctl("up", TOPOLOGY, "--set", "cluster.executor=slurm")
    assert ran.code == 1
    assert ran.err.startswith("error[PD507]: this version has no executor `slurm`\n")
