"""Batch scripts made of a plan: their text, and what bash makes of their words."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pdctl import plugins
from pdctl.compiler import Programs, compile_plan
from pdctl.executors.archive import ShimArchive
from pdctl.executors.slurm_job.batch_job import batch_job
from pdctl.inventory import Inventory, declared
from pdctl.lifecycle.planning import Planned, TopologySource, open_plan, plan_file
from pdctl.plan.model import LaunchPlan
from pdctl.topology.model import Topology
from pdctl.views.sbatch_script import sbatch_script

ROOT = Path(__file__).parents[4]
SHIPPED = ("deepseek_v3", "gb200_mnnvl")
SHIM = ShimArchive(name="shim-0.py", content=b"print('the real one is 150 kB')\n")
SHELLCHECK = shutil.which(
    "shellcheck", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
)
SMALL = """\
schema: pdctl/v1
name: small
model: {path: builtin:smollm2-135m-instruct}
engine: {kind: reference, python: /opt/venv/bin/python}
cluster: {executor: slurm, nodes: 3}
prefill: {}
decode: {instances: 2}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What is known of the allocation's nodes when a job starts."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]

    def of(self, inventory: Inventory) -> Inventory:
        pairs = zip(inventory.nodes, self.addresses, strict=True)
        return Inventory(nodes=tuple(replace(node, address=address) for node, address in pairs))


@functools.cache
def shipped(name: str) -> Planned:
    return plan_file(TopologySource(path=str(ROOT / "topologies" / f"{name}.yaml")))


def small(tmp_path: Path, *sets: str) -> Planned:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL, encoding="utf-8")
    return plan_file(TopologySource(path=str(file), sets=sets))


def script_of(planned: Planned, plan: LaunchPlan | None = None) -> str:
    job = batch_job(planned.topology, token="pdctl render")
    return sbatch_script(plan or open_plan(planned), job, SHIM, digest=planned.plan.digest)


def specs(script: str, process_ids: Sequence[str], bound: Bound) -> list[dict[str, Any]]:
    """What the shim would be told of each process, on nodes like these."""
    functions = script.removesuffix("main\n")
    assert functions != script
    lines = [
        functions,
        f"NODE=({' '.join(bound.names)}) ADDRESS=({' '.join(bound.addresses)})",
        *(
            f"environment=() argv=(); plan_{each.translate(str.maketrans('-.', '__'))}; spec {each}"
            for each in process_ids
        ),
    ]
    ran = subprocess.run(
        ["bash"],
        input="\n".join(lines),
        env={**os.environ, "SLURM_JOB_ID": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]


def compiled(topology: Topology, inventory: Inventory) -> LaunchPlan:
    engine = plugins.program("engines", topology.engine.kind)
    router = plugins.program("routers", topology.router.kind)
    assert engine is not None
    assert router is not None
    return compile_plan(topology, inventory, Programs(engine=engine, router=router))


def with_words(planned: Planned, *words: str) -> LaunchPlan:
    """The plan with other arguments, and variables of the same texts."""
    plan = open_plan(planned)
    changed = replace(
        plan.processes[0], argv=words, env={f"V{number}": word for number, word in enumerate(words)}
    )
    return replace(plan, processes=(changed, *plan.processes[1:]))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_script_reads_like_this(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"scripts/{name}.sbatch", script_of(shipped(name)))


@pytest.mark.parametrize("name", SHIPPED)
def test_bound_to_nodes_it_runs_the_plan_that_is_compiled_for_these_nodes(name: str) -> None:
    planned = shipped(name)
    inventory = declared(planned.topology.cluster)
    numbers = range(len(inventory.nodes))
    bound = Bound(
        names=tuple(f"gpu{number}" for number in numbers),
        addresses=tuple(f"gpu{number}.cluster" for number in numbers),
    )
    plan = compiled(planned.topology, bound.of(inventory))
    name_of = dict(zip((node.name for node in inventory.nodes), bound.names, strict=True))
    assert specs(script_of(planned), [process.id for process in plan.processes], bound) == [
        {
            "format": 1,
            "deployment": plan.name,
            "process_id": process.id,
            "node": name_of[process.node],
            "grace_s": process.grace_s,
            "argv": list(process.argv),
            "env": dict(process.env),
        }
        for process in plan.processes
    ]


WORDS = (
    *(
        "",
        " ",
        "a b",
        "it's",
        '"$HOME" `id` $(id) \\ \\n',
        "back\\slash",
        "new\nline\ttab",
        "\x01\x1b[0m\x7f",
    ),
    *("ümlaut 日本", "a&b", "*", "~", "--", "a,b={c}", "${ADDRESS[0]}", "ends with \\"),
)


@pytest.mark.parametrize("word", WORDS)
def test_words_and_variables_arrive_as_they_are(word: str, tmp_path: Path) -> None:
    planned = small(tmp_path)
    script = script_of(planned, with_words(planned, "run", word, "--flag", word))
    bound = Bound(names=("n1",), addresses=("10.0.0.1",))
    (spec,) = specs(script, [planned.plan.processes[0].id], bound)
    assert spec["argv"] == ["run", word, "--flag", word]
    assert spec["env"] == {"V0": "run", "V1": word, "V2": "--flag", "V3": word}


def test_what_waits_for_others_starts_behind_them(tmp_path: Path) -> None:
    script = script_of(small(tmp_path, "cluster.nodes=2", "prefill.instances=2", "decode.instances=1"))
    lines = script.partition("bring_up() {\n")[2].partition("}\n")[0].split("\n")
    assert [line.strip() for line in lines if line] == [
        "prepare prefill-0.0 prefill-1.0",
        "start prefill-0.0",
        "start prefill-1.0",
        "start decode-0.0",
        "await_ready prefill-0.0 prefill-1.0 decode-0.0",
        "start router-0.0",
        "await_ready router-0.0",
    ]


VARIANTS = (
    (),
    ("cluster.slurm.container={runtime: pyxis, image: 'nvcr.io#a', mounts: ['/models:/models']}",),
    ("cluster.slurm.container={runtime: apptainer, image: /img.sif}", "cluster.slurm.node_dir=/scratch"),
    ("cluster.nodes=[{name: gpu1}, {name: gpu2, address: 10.0.0.2}]",),
    ("cluster.slurm.run_dir=~/it's", "cluster.slurm.srun_args=[--network=sharp]"),
)


@pytest.mark.parametrize("sets", VARIANTS)
def test_shellcheck_has_nothing_to_say(sets: tuple[str, ...], tmp_path: Path) -> None:
    assert SHELLCHECK is not None, "the dev extra brings it"
    checked = subprocess.run(
        [SHELLCHECK, "-"],
        input=script_of(small(tmp_path, *sets)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout) == (0, "")


def settings_of(script: str) -> dict[str, str]:
    """The variables above the first process, as they are written."""
    lines = script.partition("set -euo pipefail\n")[2].partition("\n\n#")[0].splitlines()
    return dict(line.partition("  # ")[0].split("=", 1) for line in lines if line)


def test_a_container_surrounds_each_step_and_has_the_jobs_folder(tmp_path: Path) -> None:
    pyxis = settings_of(script_of(small(tmp_path, *VARIANTS[1])))
    assert "--container-image=nvcr.io#a" in pyxis["STEP_OPTIONS"]
    assert '--container-mounts=/models:/models,"$RUN_DIR":"$RUN_DIR"' in pyxis["STEP_OPTIONS"]
    apptainer = settings_of(script_of(small(tmp_path, *VARIANTS[2])))
    assert apptainer["LAUNCHER"] == (
        '(apptainer exec --nv --rocm --bind=/scratch:/scratch --bind="$RUN_DIR":"$RUN_DIR" /img.sif)'
    )
    assert apptainer["RUN_ROOT"] == '/scratch/"${RUN_DIR##*/}"'


def test_nodes_that_the_document_names_are_asked_for_and_not_looked_up(tmp_path: Path) -> None:
    script = script_of(small(tmp_path, *VARIANTS[3]))
    assert "#SBATCH --nodelist=gpu1,gpu2\n" in script
    assert settings_of(script)["NODE"] == "(gpu1 gpu2)"
    assert '"${ADDRESS[0]}"' in script
    assert '"${ADDRESS[1]}"' not in script
    assert "10.0.0.2" in script
