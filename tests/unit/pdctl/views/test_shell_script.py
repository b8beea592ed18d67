"""Scripts made of a plan: their text, and what bash makes of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.plan.codec import plan_from_json
from pdctl.plan.model import LaunchPlan, PlanNode
from pdctl.views.shell_script import shell_scripts

PLANS = Path(__file__).parents[3] / "golden" / "plans"
# Beside the interpreter where a package brought it, else on the PATH.
SHELLCHECK = shutil.which(
    "shellcheck", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
)


def shipped(name: str) -> LaunchPlan:
    return plan_from_json((PLANS / f"{name}.json").read_bytes())


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """`script("start")` runs a node's script whose two processes sleep; they are gone after the test."""
    path = tmp_path / "here.sh"
    path.write_text(shell_scripts(sleepers())["here.sh"], encoding="utf-8")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", str(path), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    yield run
    run("stop")


def sleepers() -> LaunchPlan:
    """Two processes that run until they are stopped, and what they started with them."""
    plan = shipped("llama_1p1d")
    argv = ("bash", "-c", 'echo "$GREETING" from "$0"; sleep 600 & wait', "it's $me")
    processes = tuple(
        replace(
            process,
            id=f"decode-{index}.0",
            node="here",
            argv=argv,
            env={"GREETING": 'a "b" $c\n'},
            ready=None,
        )
        for index, process in enumerate(plan.processes[:2])
    )
    nodes = (PlanNode(name="here", address="here"), PlanNode(name="idle", address="idle"))
    return replace(plan, nodes=nodes, processes=processes)


def test_a_script_reads_like_this(golden: Callable[[str, str], None]) -> None:
    scripts = shell_scripts(shipped("deepseek_v3_2p2d"))
    assert list(scripts) == ["node-1.sh", "node-2.sh", "node-3.sh", "node-4.sh"]
    golden("scripts/node-1.sh", scripts["node-1.sh"])


def test_a_node_without_processes_has_no_script() -> None:
    assert list(shell_scripts(sleepers())) == ["here.sh"]


def test_start_and_stop_leave_nothing(script: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert script("status").returncode == 1
    assert [line.split(",")[0] for line in script("start").stdout.splitlines()] == [
        "decode-0.0 started",
        "decode-1.0 started",
    ]
    assert script("start").stdout.startswith("decode-0.0 runs already")
    status = script("status")
    assert (status.returncode, status.stdout.count(" runs, process ")) == (0, 2)
    group = int(status.stdout.split()[-1])
    assert script("stop").stdout == "decode-1.0 stopped\ndecode-0.0 stopped\n"
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)
    assert script("stop").stdout == "decode-1.0 doesn't run\ndecode-0.0 doesn't run\n"


def test_words_and_variables_arrive_as_they_are(
    script: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    script("start")
    log = tmp_path / "here.run" / "decode-0.0.log"
    for _ in range(100):
        if log.read_text(encoding="utf-8").endswith("$me\n"):
            break
        subprocess.run(["sleep", "0.05"], check=True)
    assert log.read_text(encoding="utf-8") == 'a "b" $c\n from it\'s $me\n'


@pytest.mark.parametrize("words", [(), ("restart",), ("run",), ("run", "decode-9.0")])
def test_anything_else_is_refused(
    script: Callable[..., subprocess.CompletedProcess[str]], words: tuple[str, ...]
) -> None:
    assert script(*words).returncode != 0


@pytest.mark.parametrize("name", ["ascend_1p1d", "deepseek_v3_2p2d", "llama_1p1d"])
def test_shellcheck_has_nothing_to_say(name: str, tmp_path: Path) -> None:
    assert SHELLCHECK is not None, "the dev extra brings it"
    for file, text in shell_scripts(shipped(name)).items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    checked = subprocess.run(
        [SHELLCHECK, *(str(path) for path in sorted(tmp_path.glob("*.sh")))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout) == (0, "")
