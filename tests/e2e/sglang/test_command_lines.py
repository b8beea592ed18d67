"""Every command line of our topologies and cases goes through SGLang's own parser, of its own version.

And through the resolution that a server does before it loads a model: there SGLang refuses what contradicts
itself. It also looks for hardware there; `LACKING` says what this machine lacks, and no other refusal passes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pdctl.diagnostics import DiagnosticError, Severity
from pdctl.flagtable.shelf import known_versions
from pdctl.lifecycle.planning import TopologySource, plan_file
from pdctl.plan.argv import flags_of
from pdctl.plan.model import Instance, LaunchPlan, ProcessSpec, RoleKind

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the testbed may have to be built first

ROOT = Path(__file__).parents[3]
SHAPES = json.loads(Path(__file__).with_name("shapes.json").read_text())

TOPOLOGIES = sorted(
    path
    for path in (ROOT / "topologies").glob("*.yaml")
    if "kind: sglang," in path.read_text(encoding="utf-8")
)
CASES = sorted((ROOT / "tests" / "golden" / "cases" / "b").glob("*.yaml"))


@dataclass(frozen=True)
class Lack:
    """Hardware that a flag asks for, by that flag in `LACKING`."""

    what: str
    asking: str  # a value that asks for it
    refusal: str  # what SGLang says where it is missing: the beginning, as a regular expression


LACKING = {
    "disaggregation-ib-device": Lack(
        "an InfiniBand device", "mlx5_0", "RuntimeError: InfiniBand sysfs path not found"
    ),
    "attention-backend": Lack(
        "a Blackwell GPU", "trtllm_mla", r"ValueError: TRTLLM M[HL]A backend .*on Blackwell GPUs"
    ),
    "device": Lack("an Ascend NPU", "npu", "ImportError: torch_npu is required"),
}


@pytest.fixture(autouse=True)
def _variables_of_topologies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_MODEL", "/models/tiny")
    monkeypatch.setenv("SGLANG_PYTHON", "python3")


@pytest.fixture(scope="session")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with nothing but a config.json of that shape: all that arguments are resolved against."""
    folder = tmp_path_factory.mktemp("models")
    for name, config in SHAPES.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    return lambda shape: folder / shape


def engine_processes(plan: LaunchPlan) -> list[ProcessSpec]:
    return [process for process in plan.processes if process.role is not RoleKind.ROUTER]


def own_words(process: ProcessSpec) -> list[str]:
    assert process.argv[1:3] == ("-m", "sglang.launch_server")
    return list(process.argv[3:])


@pytest.mark.parametrize("path", [*TOPOLOGIES, *CASES], ids=lambda path: path.stem)
def test_its_version_takes_every_command_line(path: Path, real_parser, planned, model_of):
    plan, version = planned(path)
    assert_taken(plan, real_parser(version), model_of)


@pytest.mark.parametrize("version", known_versions("sglang"))
@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_another_version_gets_its_own_spellings_or_a_diagnostic(
    path: Path, version: str, real_parser, model_of
):
    """`--set engine.version=…` changes the spellings, not the topology; what a version lacks, pdctl says."""
    source = TopologySource(path=str(path), sets=(f"engine.version={version}",))
    try:
        plan = plan_file(source).plan
    except DiagnosticError as error:
        lacking = [each for each in error.diagnostics if each.severity is Severity.ERROR]
        assert {each.code[:4] for each in lacking} <= {"PD23", "PD24", "PD25", "PD26"}, lacking
        return
    assert_taken(plan, real_parser(version), model_of)


def assert_taken(plan: LaunchPlan, sglang, model_of) -> None:
    model = model_of(shape_of(plan))
    for process in engine_processes(plan):
        parsed = sglang.ask(own_words(process), resolve=False)
        assert parsed.error is None, f"{process.id}: {parsed.error}"
        # The parser takes any unambiguous beginning of a flag; a plan spells flags out.
        assert {f"--{name}" for name in flags_of(process.argv)} <= sglang.flags
        error, _ = resolve_here(sglang, of_model(own_words(process), model), process.env)
        assert error is None, f"{process.id}: {error}"


def resolve_here(sglang, words: Sequence[str], env: Mapping[str, str]) -> tuple[str | None, list[str]]:
    """Why SGLang refuses it, and the flags left out: each only after it was refused for what is lacking."""
    words = list(words) if "--device" in words else [*words, "--device", "cuda"]
    left_out: list[str] = []
    while True:
        error = sglang.ask(words, env=env, resolve=True).error
        flag = None if error is None else flag_of_what_is_lacking(error)
        if flag is None or flag in left_out:
            return error, left_out
        left_out.append(flag)
        words = without(words, flag)
        words += ["--device", "cuda"] if flag == "device" else []


def flag_of_what_is_lacking(error: str) -> str | None:
    return next((flag for flag, lack in LACKING.items() if re.match(lack.refusal, error)), None)


@pytest.mark.parametrize("version", known_versions("sglang"))
def test_what_is_lacking_here_is_lacking_for_every_version(version: str, real_parser, model_of):
    """So the list has nothing that could be resolved after all."""
    for flag, lack in LACKING.items():
        words = ["--disaggregation-mode", "prefill", f"--{flag}", lack.asking]
        assert resolve_here(real_parser(version), of_model(words, model_of("mla")), {}) == (None, [flag])


@pytest.mark.parametrize("version", known_versions("sglang"))
def test_the_resolution_of_every_version_refuses_a_contradiction(version: str, real_parser, model_of):
    """Here it is no part of the parser, so a command line that passes was indeed resolved."""
    words = of_model(["--tp-size", "4", "--dp-size", "3", "--enable-dp-attention"], model_of("mla"))
    assert real_parser(version).ask(words, resolve=False).error is None
    error, _ = resolve_here(real_parser(version), words, {})
    assert error is not None
    assert error.startswith("AssertionError")


def test_the_real_router_takes_every_command_line(planned):
    plans = {path.stem: planned(path)[0] for path in (*TOPOLOGIES, *CASES)}
    asked = {stem: router_words(plan) for stem, plan in plans.items()}
    said = subprocess.run(
        [sys.executable, "-c", READ_ROUTER_ARGS],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout) == {
        stem: [
            [[f"http://{each.http}", bootstrap_port(each)] for each in of_role(plan, RoleKind.PREFILL)],
            [f"http://{each.http}" for each in of_role(plan, RoleKind.DECODE)],
        ]
        for stem, plan in plans.items()
    }


READ_ROUTER_ARGS = """\
import json, sys
from sglang_router.launch_router import parse_router_args
read = {name: parse_router_args(argv) for name, argv in json.load(sys.stdin).items()}
print(json.dumps({name: [args.prefill_urls, args.decode_urls] for name, args in read.items()}))
"""


def router_words(plan: LaunchPlan) -> list[str]:
    (router,) = (process for process in plan.processes if process.role is RoleKind.ROUTER)
    return list(router.argv[router.argv.index("sglang_router.launch_router") + 1 :])


def of_role(plan: LaunchPlan, role: RoleKind) -> list[Instance]:
    return [each for each in plan.instances if each.role is role]


def bootstrap_port(instance: Instance) -> int | None:
    return None if instance.bootstrap is None else instance.bootstrap.port


@pytest.fixture
def planned() -> Callable[[Path], tuple[LaunchPlan, str]]:
    """The plan of a topology, and the engine version that it is for."""

    def plan(path: Path) -> tuple[LaunchPlan, str]:
        made = plan_file(TopologySource(path=str(path)))
        assert made.topology.engine.version is not None
        return made.plan, made.topology.engine.version

    return plan


def shape_of(plan: LaunchPlan) -> str:
    name = plan.served_model.lower()
    if any(part in name for part in ("v3.2", "glm-5")):
        return "dsa"
    if any(part in name for part in ("deepseek", "kimi", "/models")):
        return "mla"
    return "gqa-moe" if any(part in name for part in ("a22b", "a3b", "a17b", "gpt-oss", "moe")) else "gqa"


def of_model(argv: Sequence[str], model: Path) -> list[str]:
    """The same command line for a folder that has a model's shape and no weights."""
    return ["--model-path", str(model), "--load-format", "dummy", *without(argv, "model-path", "load-format")]


def without(argv: Sequence[str], *flags: str) -> list[str]:
    words: list[str] = []
    skipping = False
    for word in argv:
        if word.startswith("--"):
            skipping = word[2:] in flags
        if not skipping:
            words.append(word)
    return words
