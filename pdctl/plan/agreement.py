"""Do the command lines of a plan agree: ranks, instances of a role, both roles, the router? Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pdctl.plan.argv import Flags, flags_of, shown
from pdctl.plan.model import Instance, LaunchPlan, ProcessSpec, RoleKind

# Flags that name the place of one process; by their values alone may the ranks of an instance differ.
RANK_FLAGS = frozenset({"host", "node-rank", "disaggregation-ib-device"})
# And by these the instances of one role.
INSTANCE_FLAGS = RANK_FLAGS | {
    "port",
    "base-gpu-id",
    "dist-init-addr",
    "nccl-port",
    "disaggregation-bootstrap-port",
    "kv-events-config",
}
# Flags that mean the same on both roles: one writes the KV that the other reads.
PAIR_FLAGS = frozenset(
    {"model-path", "served-model-name", "disaggregation-transfer-backend", "page-size", "kv-cache-dtype"}
)
# Variables of the protocol between the roles. Others may be a node's own, such as its network interface.
PAIR_VARIABLES = ("SGLANG_DISAGG",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inconsistency:
    """Two places of a plan that contradict each other."""

    place: str  # the process where it shows; an instance or the plan where it is no one process
    message: str

    def __str__(self) -> str:
        return f"`{self.place}`: {self.message}"


def disagreements(plan: LaunchPlan) -> Iterator[Inconsistency]:
    for instance in plan.instances:
        ranks = [process for process in plan.processes if process.instance_id == instance.id]
        yield from _differing_flags(ranks, RANK_FLAGS)
        yield from _differing_variables(ranks)
    for role in (RoleKind.PREFILL, RoleKind.DECODE):
        leaders = [process for process in plan.processes if process.role is role and process.node_rank == 0]
        yield from _differing_flags(leaders, INSTANCE_FLAGS)
        yield from _differing_variables(leaders)
    yield from _differing_roles(plan)
    yield from _routes(plan)


def _differing_flags(processes: Sequence[ProcessSpec], own: frozenset[str]) -> Iterator[Inconsistency]:
    for before, process in pairwise(processes):
        wanted, found = flags_of(before.argv), flags_of(process.argv)
        for name in sorted(wanted.keys() | found.keys()):
            missing = name not in wanted or name not in found
            if missing or (name not in own and wanted[name] != found[name]):
                yield _difference(process, before, name, found, wanted)


def _differing_variables(processes: Sequence[ProcessSpec]) -> Iterator[Inconsistency]:
    for before, process in pairwise(processes):
        for name in sorted(before.env.keys() | process.env.keys()):
            if name.startswith(PAIR_VARIABLES) and before.env.get(name) != process.env.get(name):
                yield Inconsistency(
                    place=process.id,
                    message=f"has `{name}` {process.env.get(name)}, `{before.id}` {before.env.get(name)}",
                )


def _differing_roles(plan: LaunchPlan) -> Iterator[Inconsistency]:
    engines = [process for process in plan.processes if process.role is not RoleKind.ROUTER]
    for before, process in pairwise(engines):
        wanted, found = flags_of(before.argv), flags_of(process.argv)
        for name in sorted(PAIR_FLAGS & wanted.keys() & found.keys()):
            if found[name] != wanted[name]:
                yield _difference(process, before, name, found, wanted)


def _routes(plan: LaunchPlan) -> Iterator[Inconsistency]:
    """The router lists every engine instance once: prefill with its bootstrap port, decode without."""
    router = next((each for each in plan.processes if each.role is RoleKind.ROUTER), None)
    if router is None:
        return
    flags = flags_of(router.argv)
    prefills = [each for each in plan.instances if each.role is RoleKind.PREFILL]
    wanted = {
        "prefill": tuple(word for each in prefills for word in _prefill_entry(each)),
        "decode": tuple(f"http://{each.http}" for each in plan.instances if each.role is RoleKind.DECODE),
    }
    for name, entries in wanted.items():
        if flags.get(name, ()) != entries:
            yield Inconsistency(
                place=router.id,
                message=f"has {shown(name, flags.get(name))}, the plan has {' '.join(entries)}",
            )


def _prefill_entry(instance: Instance) -> tuple[str, ...]:
    port = () if instance.bootstrap is None else (str(instance.bootstrap.port),)
    return (f"http://{instance.http}", *port)


def _difference(
    process: ProcessSpec, other: ProcessSpec, name: str, found: Flags, wanted: Flags
) -> Inconsistency:
    return Inconsistency(
        place=process.id,
        message=f"has {shown(name, found.get(name))}, `{other.id}` has {shown(name, wanted.get(name))}",
    )
