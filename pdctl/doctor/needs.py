"""What the plan needs of each node, read off its own command lines: there is no second description. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pdctl.plan.argv import flags_of
from pdctl.plan.consistency import VISIBLE_DEVICES
from pdctl.plan.model import LaunchPlan, PortClaim, ProcessSpec, RoleKind
from pdctl.topology.model import BUILTIN_PREFIX

_REFERENCE_ENGINE = "runtime.engine"
# What a module imports at its start and a light installation may lack.
NEEDED_PACKAGES: Mapping[str, tuple[str, ...]] = {
    _REFERENCE_ENGINE: ("runtime", "torch", "tokenizers"),
    "runtime.router": ("runtime", "uvicorn", "msgpack"),
}
RDMA_BACKENDS = ("mooncake", "mori")  # over TCP only when they are told so
_NO_RDMA = ("MC_FORCE_TCP", "MC_FORCE_MNNVL")
_SEARCH_PATHS = ("PATH", "LD_LIBRARY_PATH")  # which interpreter, which of its libraries
_IMPORT = re.compile(r"(?:^|[;\n])\s*(?:from|import)\s+(\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramNeed:
    """One interpreter with the packages that must be found by it."""

    python: str
    packages: tuple[str, ...]
    env: Mapping[str, str]  # only what decides where packages are found


@dataclass(frozen=True, slots=True, kw_only=True)
class PortNeed:
    process: ProcessSpec
    claim: PortClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNeeds:
    name: str
    address: str
    programs: tuple[ProgramNeed, ...]
    ports: tuple[PortNeed, ...]
    device_indices: tuple[int, ...]  # of accelerators, ascending; empty: CPUs
    is_nvidia: bool  # other accelerators have other tools
    rdma_devices: tuple[str, ...]  # by name; empty: the backend finds them, or none are needed
    has_rdma: bool  # KV cache goes over RDMA
    models: tuple[str, ...]  # paths on the node
    builtin_models: tuple[str, ...]  # names that the node's runtime fetches when it is started
    hub_models: tuple[str, ...]  # names that the engine fetches by itself
    hub_folder: str  # where it puts them


def needs_of(plan: LaunchPlan) -> tuple[NodeNeeds, ...]:
    """In the order of the plan's nodes; those without processes need nothing."""
    return tuple(
        _node_needs(node.name, node.address, processes)
        for node in plan.nodes
        if (processes := [each for each in plan.processes if each.node == node.name])
    )


def _node_needs(name: str, address: str, processes: Sequence[ProcessSpec]) -> NodeNeeds:
    engines = [each for each in processes if each.role is not RoleKind.ROUTER]
    models = dict.fromkeys(path for each in engines for path in flags_of(each.argv).get("model-path", ()))
    return NodeNeeds(
        name=name,
        address=address,
        programs=_programs(processes),
        ports=tuple(PortNeed(process=each, claim=claim) for each in processes for claim in each.ports),
        device_indices=tuple(sorted({index for each in engines for index in _devices_seen(each)})),
        is_nvidia=not any("ASCEND_RT_VISIBLE_DEVICES" in each.env for each in engines),
        rdma_devices=tuple(dict.fromkeys(device for each in engines for device in _rdma_devices(each))),
        has_rdma=any(_has_rdma(each) for each in engines),
        models=tuple(path for path in models if path.startswith(("/", "~"))),
        builtin_models=tuple(path for path in models if path.startswith(BUILTIN_PREFIX)),
        hub_models=tuple(path for path in models if _is_hub_name(path)),
        hub_folder=next(
            (folder for each in engines if (folder := _hub_folder(each))), "~/.cache/huggingface"
        ),
    )


def _programs(processes: Sequence[ProcessSpec]) -> tuple[ProgramNeed, ...]:
    """Each interpreter once, with all that any process wants of it."""
    wanted: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, None]] = {}
    for process in processes:
        packages = packages_of(process.argv)
        if packages is not None:
            env = tuple(sorted((key, value) for key, value in process.env.items() if _is_search_path(key)))
            wanted.setdefault((process.argv[0], env), {}).update(dict.fromkeys(packages))
    return tuple(
        ProgramNeed(python=python, packages=tuple(packages), env=dict(env))
        for (python, env), packages in wanted.items()
    )


def packages_of(argv: Sequence[str]) -> tuple[str, ...] | None:
    """What `python -m MODULE` or `python -c CODE` must find first, nothing for a script; None for a program
    that is no Python.
    """
    match list(argv[1:3]):
        case ["-m", module]:
            return NEEDED_PACKAGES.get(module, (module.partition(".")[0],))
        case ["-c", code]:
            found = _IMPORT.findall(code)
            return (found[-1],) if found else ()
        case [script, *_] if script.endswith(".py"):
            return ()
        case _:
            return None


def _is_search_path(name: str) -> bool:
    return name.startswith("PYTHON") or name in _SEARCH_PATHS


def _devices_seen(process: ProcessSpec) -> tuple[int, ...]:
    """Of accelerators. A rehearsal on CPUs is placed by them too, but shows its processes none."""
    return process.device_indices if any(name in process.env for name in VISIBLE_DEVICES) else ()


def _rdma_devices(process: ProcessSpec) -> tuple[str, ...]:
    """Of `--disaggregation-ib-device`: a list, or a map by accelerator."""
    (value, *_others) = flags_of(process.argv).get("disaggregation-ib-device", ("",))
    if value.startswith("{"):
        value = ",".join(str(each) for each in json.loads(value).values())
    return tuple(name.partition(":")[0].strip() for name in value.split(",") if name.strip())


def _has_rdma(process: ProcessSpec) -> bool:
    if _rdma_devices(process):
        return True
    if _REFERENCE_ENGINE in process.argv:  # goes over sockets unless devices are named
        return False
    backends = flags_of(process.argv).get("disaggregation-transfer-backend", ())
    return any(each in RDMA_BACKENDS for each in backends) and not any(key in process.env for key in _NO_RDMA)


def _is_hub_name(path: str) -> bool:
    return not path.startswith(("/", "~", ".", BUILTIN_PREFIX)) and path.count("/") == 1


def _hub_folder(process: ProcessSpec) -> str | None:
    return process.env.get("HF_HUB_CACHE") or process.env.get("HF_HOME")
