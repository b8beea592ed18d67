"""Does a launch plan agree with itself? Pure; looks at the plan alone, not at what it was compiled from.

A plan says many things more than once: a bootstrap port stands in the claims of a process, in its argv, in
that of the ranks beside it and in the router's. Copied launch scripts break where one copy is edited; a plan
must not. The compiler makes plans that hold, so what is found here is a fault of pdctl or an edited plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from pdctl.plan.agreement import Inconsistency, disagreements
from pdctl.plan.argv import flags_of, shown
from pdctl.plan.digest import digest, process_digest
from pdctl.plan.model import Instance, LaunchPlan, ProcessSpec

# The flag that names a port of a process, where it has a flag of that name.
FLAG_OF_PORT: Mapping[str, str] = {
    "http": "port",
    "bootstrap": "disaggregation-bootstrap-port",
    "nccl": "nccl-port",
    "metrics": "prometheus-port",
}
VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def inconsistencies(plan: LaunchPlan) -> tuple[Inconsistency, ...]:
    """All contradictions; empty for every plan that the compiler makes."""
    checks: tuple[Callable[[LaunchPlan], Iterator[Inconsistency]], ...] = (
        _digests,
        _members,
        _ranks,
        _devices,
        _claims,
        _ports_in_argv,
        _endpoints,
        disagreements,
    )
    return tuple(found for check in checks for found in check(plan))


def _digests(plan: LaunchPlan) -> Iterator[Inconsistency]:
    for process in plan.processes:
        if process.digest != process_digest(process):
            yield Inconsistency(place=process.id, message="is not what its digest was made of")
    if plan.digest != digest([[process.id, process.digest] for process in plan.processes]):
        yield Inconsistency(place=plan.name, message="the plan is not what its digest was made of")


def _members(plan: LaunchPlan) -> Iterator[Inconsistency]:
    """Processes and instances list each other, on nodes of the plan."""
    listed = [process_id for instance in plan.instances for process_id in instance.process_ids]
    present = [process.id for process in plan.processes]
    if sorted(listed) != sorted(set(present)) or len(present) != len(set(present)):
        yield Inconsistency(place=plan.name, message=f"instances list {listed}, processes are {present}")
    for instance, processes in _by_instance(plan):
        if tuple(process.id for process in processes) != instance.process_ids:
            yield Inconsistency(place=instance.id, message="its processes say that they are of another")
        if any(process.role is not instance.role for process in processes):
            yield Inconsistency(place=instance.id, message="its processes have another role")
    node_names = {node.name for node in plan.nodes}
    for process in plan.processes:
        if process.node not in node_names:
            yield Inconsistency(place=process.id, message=f"node `{process.node}` is not in the plan")


def _ranks(plan: LaunchPlan) -> Iterator[Inconsistency]:
    """Ranks are 0 … n-1, and argv says the same rank and count, if this engine's argv says them at all."""
    for instance, processes in _by_instance(plan):
        ranks = [process.node_rank for process in processes]
        if ranks != list(range(len(ranks))):
            yield Inconsistency(place=instance.id, message=f"has node ranks {ranks}")
        flags = [flags_of(process.argv) for process in processes]
        for name in ("node-rank", "nnodes"):
            if not any(name in each for each in flags):
                continue
            for process, each in zip(processes, flags, strict=True):
                wanted = process.node_rank if name == "node-rank" else len(processes)
                if each.get(name) != (str(wanted),):
                    yield Inconsistency(
                        place=process.id, message=f"has {shown(name, each.get(name))}, should be {wanted}"
                    )


def _devices(plan: LaunchPlan) -> Iterator[Inconsistency]:
    """A device belongs to one process, or to two of which one starts after the other's instance serves; the
    environment shows a process just its own.
    """
    owners: dict[tuple[str, int], str] = {}
    for process in plan.processes:
        for index in process.device_indices:
            owner = owners.setdefault((process.node, index), process.id)
            if owner != process.id and f"{owner.rpartition('.')[0]}.0" not in process.after:
                yield Inconsistency(
                    place=process.id, message=f"device {index} of `{process.node}` is `{owner}`'s"
                )
        wanted = ",".join(map(str, process.device_indices))
        for name in VISIBLE_DEVICES:
            visible = process.env.get(name)
            if visible is not None and process.device_indices and visible != wanted:
                yield Inconsistency(place=process.id, message=f"has devices {wanted}, `{name}` is {visible}")
    for instance, processes in _by_instance(plan):
        if len({len(process.device_indices) for process in processes}) > 1:
            yield Inconsistency(place=instance.id, message="its processes have unequal numbers of devices")


def _claims(plan: LaunchPlan) -> Iterator[Inconsistency]:
    """A port of an address is claimed once."""
    owners: dict[tuple[str, int], str] = {}
    addresses = {node.name: node.address for node in plan.nodes}
    for process in plan.processes:
        for claim in process.ports:
            owner = owners.setdefault((addresses.get(process.node, process.node), claim.port), process.id)
            if owner != process.id:
                yield Inconsistency(place=process.id, message=f"port {claim.port} is `{owner}`'s")


def _ports_in_argv(plan: LaunchPlan) -> Iterator[Inconsistency]:
    """What a process claims to listen on is what its command tells it to."""
    for process in plan.processes:
        flags = flags_of(process.argv)
        for claim in process.ports:
            flag = FLAG_OF_PORT.get(claim.name)
            if flag is None:
                continue
            said = flags.get(flag)
            if said != (str(claim.port),) and not (said is None and _is_named(process, claim.port)):
                yield Inconsistency(
                    place=process.id,
                    message=f"claims {claim.name} port {claim.port}, has {shown(flag, said)}",
                )


def _is_named(process: ProcessSpec, port: int) -> bool:
    """Whether any word of it is this number: engines outside this repository have flags of their own."""
    return any(word.rpartition(":")[2] == str(port) for word in (*process.argv, *process.env.values()))


def _endpoints(plan: LaunchPlan) -> Iterator[Inconsistency]:
    """Where an instance is reached is where its leader listens."""
    for instance, processes in _by_instance(plan):
        leader = processes[0] if processes else None
        for name, endpoint in (("http", instance.http), ("bootstrap", instance.bootstrap)):
            if endpoint is not None and (leader is None or leader.port(name) != endpoint.port):
                yield Inconsistency(
                    place=instance.id, message=f"its {name} port is {endpoint.port}, no claim of its leader"
                )


def _by_instance(plan: LaunchPlan) -> Iterator[tuple[Instance, list[ProcessSpec]]]:
    members: dict[str, list[ProcessSpec]] = defaultdict(list)
    for process in plan.processes:
        members[process.instance_id].append(process)
    for instance in plan.instances:
        yield instance, members[instance.id]
