"""Deployments that others published as working: our topology of each gives the command lines that they show.

`tests/golden/cases/b/NAME.yaml` is the deployment in our words, `NAME.json` what a right plan contains, with
its source. Command lines compare as sets of settings: order is free, aliases are one, a default is nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pdctl.flagtable.model import FlagTable
from pdctl.flagtable.shelf import load_flag_table
from pdctl.lifecycle.planning import Planned, TopologySource, plan_file
from pdctl.plan.argv import flags_of
from pdctl.plan.consistency import inconsistencies
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.topology.load import load

CASES = Path(__file__).parents[2] / "golden" / "cases" / "b"

# What a plan says though a deployment written by hand leaves it to chance or to a default.
CHOSEN_BY_PDCTL = {
    "nccl-port",  # else a random one
    "base-gpu-id",  # a process sees its own devices alone, so it counts from 0
}
VARIABLES_OF_PDCTL = {"CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "SGLANG_HOST_IP"}
# Which role reads a setting; published scripts often set both sides.
READER = {
    "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": "prefill",
    "SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "decode",
    "SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE": "decode",
    "SGLANG_DISAGG_STAGING_BUFFER_SIZE_MB": "prefill",
    "SGLANG_DISAGG_STAGING_POOL_SIZE_MB": "decode",
}
# What is worth a word though it works: flags on their way out, variables that no release reads any more, MoE
# settings near their limits, a page size that one side leaves to its engine. Nothing else may be said.
WARNINGS = {
    "053": {"PD291"},
    "054": {"PD236", "PD273"},
    "064": {"PD236"},
    "067": {"PD236", "PD273"},
    "071": {"PD236", "PD290", "PD291"},
    "072": {"PD302"},
    "073": {"PD236"},
}
DP_NAMES = ("data-parallel-size", "dp-size")
Setting = tuple[str, ...]


@dataclass(frozen=True)
class Case:
    name: str
    processes: dict[str, dict]
    roles: dict[str, dict]
    router: list[str]

    def argv(self, process_id: str) -> list[str]:
        return [*self.roles[role_of(process_id)]["argv"], *self.processes[process_id]["argv"]]

    def env(self, process_id: str) -> dict[str, str]:
        return {**self.roles[role_of(process_id)]["env"], **self.processes[process_id]["env"]}


def read(name: str) -> Case:
    told = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    return Case(name=name, processes=told["processes"], roles=told["roles"], router=told["router"])


def role_of(process_id: str) -> str:
    return process_id.partition("-")[0]


NAMES = sorted(path.stem for path in CASES.glob("*.yaml"))


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest) -> Case:
    return read(request.param)


@pytest.fixture(scope="module")
def made(case: Case) -> Planned:
    return plan_file(TopologySource(path=str(CASES / f"{case.name}.yaml")))


@pytest.fixture(scope="module")
def plan(made: Planned) -> LaunchPlan:
    return made.plan


@pytest.fixture(scope="module")
def table(case: Case) -> FlagTable:
    topology = load(str(CASES / f"{case.name}.yaml"), environ={}).require()
    table = load_flag_table("sglang", topology.engine.version or "")
    assert table is not None
    return table


def test_there_are_fourteen():
    assert len(NAMES) == len(list(CASES.glob("*.json"))) == 14


def test_processes_lie_on_the_same_nodes_and_devices(case: Case, plan: LaunchPlan):
    engines = [process for process in plan.processes if process.id != "router-0.0"]
    assert {each.id: (each.node, list(each.device_indices)) for each in engines} == {
        name: (process["node"], process["devices"]) for name, process in case.processes.items()
    }


def test_command_lines_have_the_same_settings(case: Case, plan: LaunchPlan, table: FlagTable):
    for process in engines(plan):
        wanted = settings(words(case.argv(process.id)), table)
        found = settings(process.argv, table)
        address = case.processes[process.id]["address"]
        assert comparable(found, process, address) == comparable(wanted, process, address), process.id


def test_variables_are_the_same(case: Case, plan: LaunchPlan):
    for process in engines(plan):
        wanted = case.env(process.id)
        read = {
            name: value
            for name, value in wanted.items()
            if READER.get(name, process.role.value) == process.role.value
        }
        found = {name: value for name, value in process.env.items() if name not in VARIABLES_OF_PDCTL}
        assert folded(found) == folded(read), process.id


def test_the_router_gets_the_same_workers_and_settings(case: Case, plan: LaunchPlan):
    router = plan.process("router-0.0")
    assert router is not None
    wanted, found = flags_of(words(case.router)), flags_of(router.argv)
    for name in ("prefill", "decode"):
        assert hosts(found.pop(name)) == hosts(wanted.pop(name))
    assert {name: found.get(name) for name in wanted} == wanted


def test_nothing_is_refused_and_little_is_warned_of(case: Case, made: Planned):
    assert {each.code for each in made.warnings} == WARNINGS.get(case.name[:3], set())


def test_the_plan_agrees_with_itself(plan: LaunchPlan):
    assert inconsistencies(plan) == ()


def engines(plan: LaunchPlan) -> list[ProcessSpec]:
    return [process for process in plan.processes if process.role.value != "router"]


def words(entries: Sequence[str]) -> list[str]:
    """`--flag value` entries as words; a JSON value is one word."""
    split = [entry.split(" ", 1) if "{" in entry else entry.split() for entry in entries]
    return [word for entry in split for word in entry]


def settings(argv: Sequence[str], table: FlagTable) -> dict[str, Setting]:
    """Canonical name to value, without what is the default anyway; a flag given twice is a failure."""
    found: dict[str, Setting] = {}
    for name, values in flags_of(argv).items():
        flag = table.flag(name)
        assert flag is not None, f"`--{name}` is no flag of {table.label}"
        assert flag.name not in found, f"`--{name}` is given twice"
        if values != (str(flag.default),):
            found[flag.name] = values
    return found


def comparable(settings: dict[str, Setting], process: ProcessSpec, address: str) -> dict[str, Setting]:
    """What is left when two spellings of one thing are one, and what the source leaves open is gone."""
    rest = {name: values for name, values in settings.items() if name not in CHOSEN_BY_PDCTL}
    if rest.get("host", (address,)) in ((address,), ("0.0.0.0",)):
        rest.pop("host", None)
    if process.node_rank > 0:
        rest.pop("port", None)  # followers serve nothing; some manifests leave it out
    if not process.instance_id.endswith("-0"):
        # Sources let each instance have a host, or chance, to itself: ports of further ones are the plan's.
        rest.pop("port", None)
        rest.pop("disaggregation-bootstrap-port", None)
    if "dist-init-addr" in rest:
        rest["dist-init-addr"] = (rest["dist-init-addr"][0].rpartition(":")[0],)
    if rest.get("served-model-name") == rest["model-path"]:
        rest.pop("served-model-name")
    if rest.pop("enable-dp-attention", None) is not None:  # the spelling before 0.5.22
        rest["attn-dp-size"] = next(rest.pop(name) for name in DP_NAMES if name in rest)
    return {name: tuple(map(plain, values)) for name, values in rest.items()}


def plain(value: str) -> object:
    """JSON as a value; which port events are published on is the plan's choice."""
    if not value.startswith("{"):
        return value
    told = json.loads(value)
    return {**told, "endpoint": told["endpoint"].rpartition(":")[0]} if "endpoint" in told else told


def hosts(entries: Sequence[str]) -> list[str]:
    """Of the URLs among a router's entries, in their order."""
    return [entry.rpartition(":")[0] for entry in entries if entry.startswith("http")]


def folded(env: dict[str, str]) -> dict[str, str]:
    """SGLang reads `SGL_X` as `SGLANG_X`, True as 1, and a memory pool that is `True` as NVLINK."""
    same = {"true": "1", "True": "1", "NVLINK": "1"}
    renamed = {f"SGLANG_{name[4:]}" if name.startswith("SGL_") else name: env[name] for name in env}
    return {name: same.get(value, value) for name, value in renamed.items()}
