"""Every command line of our topologies and cases goes through SGLang's own parser, of its own version.

And through the resolution that a 0.5.23 server does before it loads a model: there SGLang refuses what
contradicts itself. What it asks of the machine, such as kernels and RDMA devices, is left out there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pdctl.diagnostics import DiagnosticError, Severity
from pdctl.flagtable.shelf import known_versions, load_flag_table
from pdctl.lifecycle.planning import TopologySource, plan_file
from pdctl.plan.argv import flags_of
from pdctl.plan.model import LaunchPlan, ProcessSpec, RoleKind

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the testbed may have to be built first

ROOT = Path(__file__).parents[3]
SHAPES = json.loads(Path(__file__).with_name("shapes.json").read_text())
RESOLVED_VERSION = "0.5.23"

TOPOLOGIES = sorted(
    path
    for path in (ROOT / "topologies").glob("*.yaml")
    if "kind: sglang," in path.read_text(encoding="utf-8")
)
CASES = sorted((ROOT / "tests" / "golden" / "cases" / "b").glob("*.yaml"))

# What SGLang looks up on the machine itself when it resolves arguments.
ASKED_OF_THE_MACHINE = {
    "disaggregation-ib-device",  # /sys/class/infiniband
    "attention-backend",  # kernels of a GPU generation
    "device",
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


# The resolution of other versions wants other packages than the testbed's; the parser of all is asked above.
RESOLVED = [path for path in (*TOPOLOGIES, *CASES) if f'version: "{RESOLVED_VERSION}"' in path.read_text()]


def engine_processes(plan: LaunchPlan) -> list[ProcessSpec]:
    return [process for process in plan.processes if process.role is not RoleKind.ROUTER]


def own_words(process: ProcessSpec) -> list[str]:
    assert process.argv[1:3] == ("-m", "sglang.launch_server")
    return list(process.argv[3:])


@pytest.mark.parametrize("path", [*TOPOLOGIES, *CASES], ids=lambda path: path.stem)
def test_the_real_parser_takes_every_command_line(path: Path, real_parser, planned):
    plan, version = planned(path)
    parser = real_parser(version)
    for process in engine_processes(plan):
        parsed = parser.ask(own_words(process), env=None, resolve=False)
        assert parsed.error is None, f"{process.id}: {parsed.error}"
        # The parser takes any unambiguous beginning of a flag; a plan spells flags out.
        assert {f"--{name}" for name in flags_of(process.argv)} <= parser.flags


@pytest.mark.parametrize("path", RESOLVED, ids=lambda path: path.stem)
def test_the_real_resolution_takes_every_command_line(path: Path, real_parser, planned, model_of):
    plan, version = planned(path)
    assert version == RESOLVED_VERSION
    parser = real_parser(version)
    for process in engine_processes(plan):
        words = for_this_machine(own_words(process), model_of(shape_of(plan)))
        parsed = parser.ask(words, env=process.env, resolve=True)
        assert parsed.error is None, f"{process.id}: {parsed.error}"


@pytest.mark.parametrize("version", known_versions("sglang"))
@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_another_version_gets_its_own_spellings_or_a_diagnostic(path: Path, version: str, real_parser):
    """`--set engine.version=…` changes the spellings, not the topology; what a version lacks, pdctl says."""
    source = TopologySource(path=str(path), sets=(f"engine.version={version}",))
    try:
        plan = plan_file(source).plan
    except DiagnosticError as error:
        lacking = [each for each in error.diagnostics if each.severity is Severity.ERROR]
        assert {each.code[:4] for each in lacking} <= {"PD23", "PD24", "PD25", "PD26"}, lacking
        return
    parser = real_parser(version)
    for process in engine_processes(plan):
        parsed = parser.ask(own_words(process), env=None, resolve=False)
        assert parsed.error is None, f"{process.id}: {parsed.error}"
        assert {f"--{name}" for name in flags_of(process.argv)} <= parser.flags


@pytest.mark.parametrize("version", known_versions("sglang"))
def test_our_table_has_exactly_the_flags_of_the_real_parser(version: str, real_parser):
    table = load_flag_table("sglang", version)
    assert table is not None
    real = {name.removeprefix("--") for name in real_parser(version).flags if name.startswith("--")}
    assert set(table.by_spelling) == real - {"help"}


@pytest.mark.parametrize("path", [*TOPOLOGIES, *CASES], ids=lambda path: path.stem)
def test_the_real_router_takes_its_command_line(path: Path, planned):
    plan, _ = planned(path)
    (router,) = (process for process in plan.processes if process.role is RoleKind.ROUTER)
    argv = list(router.argv[router.argv.index("sglang_router.launch_router") + 1 :])
    read = (
        "import json, sys\n"
        "from sglang_router.launch_router import parse_router_args\n"
        "args = parse_router_args(json.load(sys.stdin))\n"
        "print(json.dumps([args.prefill_urls, args.decode_urls]))\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", read], input=json.dumps(argv), capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    prefill, decode = json.loads(said.stdout)
    roles = {role: [each for each in plan.instances if each.role is role] for role in RoleKind}
    assert prefill == [[f"http://{each.http}", bootstrap_port(each)] for each in roles[RoleKind.PREFILL]]
    assert decode == [f"http://{each.http}" for each in roles[RoleKind.DECODE]]


def bootstrap_port(instance) -> int | None:
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
    if any(part in name for part in ("deepseek", "kimi", "glm-5", "/models")):
        return "mla"
    return "gqa-moe" if any(part in name for part in ("a22b", "a3b", "a17b", "gpt-oss", "moe")) else "gqa"


def for_this_machine(argv: Sequence[str], model: Path) -> list[str]:
    """The same command line, for a machine with no accelerator: only a model's shape, no device asked."""
    words: list[str] = ["--model-path", str(model), "--device", "cuda", "--load-format", "dummy"]
    skipping = False
    for word in argv:
        if word.startswith("--"):
            skipping = word[2:] in ASKED_OF_THE_MACHINE | {"model-path", "load-format"}
        if not skipping:
            words.append(word)
    return words
