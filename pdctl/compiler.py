"""Topology and inventory to launch plan. Pure: no clock, no environment, no disk, no network."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from pdctl.diagnostics import DiagnosticError
from pdctl.inventory import Inventory
from pdctl.plan.digest import digest, process_digest
from pdctl.plan.layout import Layout, Slot
from pdctl.plan.model import Instance, LaunchPlan, PlanNode, ProcessSpec, RoleKind
from pdctl.plan.placement import place
from pdctl.plan.ports import assign_ports
from pdctl.program import Program
from pdctl.topology.digest import topology_digest
from pdctl.topology.model import Role, Router, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The two programs that a topology names."""

    engine: Program
    router: Program

    def of(self, role: RoleKind) -> Program:
        return self.router if role is RoleKind.ROUTER else self.engine


def compile_plan(topology: Topology, inventory: Inventory, programs: Programs) -> LaunchPlan:
    """Everything that should run, in start order.

    Raises `DiagnosticError` with every placement and port fault at once.
    """
    placement = place(topology, inventory)
    needs = {role: programs.of(role).port_needs(_part(topology, role), topology) for role in RoleKind}
    assignment = assign_ports(topology.source, placement.slots, needs)
    faults = (*placement.diagnostics, *assignment.diagnostics)
    if faults:
        raise DiagnosticError(faults)
    slots = assignment.slots
    layout = Layout(topology=topology, slots=slots)
    processes = tuple(_process(slot, layout, programs) for slot in slots)
    used = {slot.node.name: slot.node for slot in slots}
    return LaunchPlan(
        name=topology.name,
        executor=topology.cluster.executor,
        topology_digest=topology_digest(topology),
        nodes=tuple(
            PlanNode(name=node.name, address=node.address, ssh=node.ssh)
            for node in inventory.nodes
            if node.name in used
        ),
        instances=_instances(slots),
        processes=processes,
        served_model=topology.model.name,
        canary=topology.health.canary,
        ssh=topology.cluster.ssh,
        slurm=topology.cluster.slurm,
        digest=digest([[process.id, process.digest] for process in processes]),
    )


def _part(topology: Topology, role: RoleKind) -> Role | Router:
    match role:
        case RoleKind.PREFILL:
            return topology.prefill
        case RoleKind.DECODE:
            return topology.decode
        case RoleKind.ROUTER:
            return topology.router


def _process(slot: Slot, layout: Layout, programs: Programs) -> ProcessSpec:
    program = programs.of(slot.role)
    topology = layout.topology
    command = program.command(slot, layout)
    spec = ProcessSpec(
        id=slot.id,
        instance_id=slot.instance_id,
        role=slot.role,
        node=slot.node.name,
        node_rank=slot.node_rank,
        device_indices=slot.device_indices,
        argv=command.argv,
        env=command.env,
        listen=(topology.router.host or slot.node.address)
        if slot.role is RoleKind.ROUTER
        else slot.node.address,
        ports=slot.ports,
        after=_after(slot, layout),
        ready=program.ready(slot, layout),
        grace_s=topology.health.stop_grace_s,
        prepare=program.prepare(topology, command.argv[0]),
        requests_metric=program.requests_metric if slot.is_leader else None,
    )
    return replace(spec, digest=process_digest(spec))


def _after(slot: Slot, layout: Layout) -> tuple[str, ...]:
    """The router starts when all it routes to serves; engines start together, but not on shared devices."""
    part = _part(layout.topology, slot.role)
    if isinstance(part, Role):
        return () if part.devices_of is None else (f"{part.devices_of}-{slot.index}.0",)
    return tuple(leader.id for role in (RoleKind.PREFILL, RoleKind.DECODE) for leader in layout.leaders(role))


def _instances(slots: tuple[Slot, ...]) -> tuple[Instance, ...]:
    members: dict[str, list[Slot]] = defaultdict(list)
    for slot in slots:
        members[slot.instance_id].append(slot)
    return tuple(
        Instance(
            id=instance_id,
            role=processes[0].role,
            process_ids=tuple(each.id for each in processes),
            http=processes[0].endpoint("http"),
            bootstrap=processes[0].endpoint("bootstrap") if processes[0].role is RoleKind.PREFILL else None,
        )
        for instance_id, processes in members.items()
    )
