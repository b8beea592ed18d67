"""Put instances on nodes and devices. Pure; every fault is a diagnostic, all of them at once."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from pdctl.diagnostics import Diagnostic
from pdctl.inventory import Inventory, Node
from pdctl.plan.layout import Slot
from pdctl.plan.model import RoleKind
from pdctl.topology.model import Role, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    slots: tuple[Slot, ...]  # without ports
    diagnostics: tuple[Diagnostic, ...]


def place(topology: Topology, inventory: Inventory) -> Placement:
    """Fill nodes in their order: prefill first, then decode, the router beside them.

    With devices, instances are packed: first node with enough free ones. Without (CPU nodes), they are
    spread: the node with the fewest processes. An instance whose role says `nodes` has those to itself.
    """
    space = _Space.of(inventory)
    slots: list[Slot] = []
    diagnostics: list[Diagnostic] = []
    for role in topology.roles:
        for placed in _places_of(topology, role, space, slots):
            if isinstance(placed, Diagnostic):
                diagnostics.append(placed)
                break  # one report per role: the instances after it lack the same
            slots.extend(placed)
    router_node = _router_node(topology, inventory)
    if isinstance(router_node, Diagnostic):
        diagnostics.append(router_node)
    else:
        slots.append(Slot(role=RoleKind.ROUTER, index=0, node_rank=0, node=router_node))
    return Placement(slots=tuple(slots), diagnostics=tuple(diagnostics))


@dataclass(slots=True)
class _Space:
    """What is still free: device indices and process counts by node name."""

    nodes: tuple[Node, ...]
    free: dict[str, list[int]]
    num_processes: dict[str, int]
    exclusive: set[str] = field(default_factory=set[str])

    @classmethod
    def of(cls, inventory: Inventory) -> _Space:
        return cls(
            nodes=inventory.nodes,
            free={node.name: list(range(node.num_devices)) for node in inventory.nodes},
            num_processes={node.name: 0 for node in inventory.nodes},
        )

    def is_untouched(self, node: Node) -> bool:
        return self.num_processes[node.name] == 0

    def usable(self, node: Node, role: Role) -> list[int]:
        """Devices that are free and that the role may have, in the order in which it takes them."""
        free = self.free[node.name]
        return [index for index in role.device_order if index in free] if role.device_order else free

    def take(self, node: Node, role: Role, num_devices: int) -> tuple[int, ...]:
        taken = tuple(self.usable(node, role)[:num_devices])
        self.free[node.name] = [index for index in self.free[node.name] if index not in taken]
        self.num_processes[node.name] += 1
        return taken


def _place_role(topology: Topology, role: Role, space: _Space) -> Iterator[tuple[Slot, ...] | Diagnostic]:
    candidates = _candidates(role, space)
    if isinstance(candidates, Diagnostic):
        yield candidates
        return
    on_devices = any(node.num_devices for node in candidates)
    num_devices = (role.devices or role.parallel.num_devices) if on_devices else 0
    if role.nodes is not None:
        picks = _whole_nodes(role, candidates, space, num_devices)
    elif on_devices:
        picks = _packed(role, candidates, space, num_devices)
    else:
        picks = _spread(candidates, space)
    for index in range(role.instances):
        picked = next(picks, None)
        if picked is None:
            yield _no_room(topology, role, candidates, index=index, num_devices=num_devices)
            return
        yield tuple(
            Slot(
                role=RoleKind(role.name),
                index=index,
                node_rank=rank,
                node=node,
                device_indices=space.take(node, role, num_devices // len(picked)),
            )
            for rank, node in enumerate(picked)
        )


def _places_of(
    topology: Topology, role: Role, space: _Space, placed: Sequence[Slot]
) -> Iterator[tuple[Slot, ...] | Diagnostic]:
    if role.devices_of is None:
        return _place_role(topology, role, space)
    owners = tuple(slot for slot in placed if slot.role == role.devices_of)
    return _beside(topology, role, space, owners)


def _beside(
    topology: Topology, role: Role, space: _Space, owners: Sequence[Slot]
) -> Iterator[tuple[Slot, ...] | Diagnostic]:
    """Each instance on the nodes and devices of the owners' instance of the same number."""
    for index in range(role.instances):
        hosts = [slot for slot in owners if slot.index == index]
        num_devices = sum(len(slot.device_indices) for slot in hosts)
        wanted = role.devices or role.parallel.num_devices
        if not hosts or num_devices not in (0, wanted):  # none: the nodes have CPUs only
            yield _nothing_to_share(topology, role, index=index, num_devices=num_devices if hosts else None)
            return
        for host in hosts:
            space.num_processes[host.node.name] += 1
        yield tuple(replace(host, role=RoleKind(role.name)) for host in hosts)


def _candidates(role: Role, space: _Space) -> tuple[Node, ...] | Diagnostic:
    if not role.on:
        return space.nodes
    by_name = {node.name: node for node in space.nodes}
    if missing := [name for name in role.on if name not in by_name]:
        return Diagnostic(
            code="PD403",
            message=f"`{role.name}.on` names `{missing[0]}`, which is no node of the cluster",
            path=f"{role.name}.on",
            notes=(f"the cluster has {', '.join(list(by_name)[:8])}",),
        )
    return tuple(by_name[name] for name in role.on)


def _whole_nodes(
    role: Role, candidates: tuple[Node, ...], space: _Space, num_devices: int
) -> Iterator[tuple[Node, ...]]:
    """Groups of nodes that nothing else uses; they are marked as taken for the roles that come later."""
    width = role.nodes or 1
    group: list[Node] = []
    for node in candidates:
        if space.is_untouched(node) and len(space.usable(node, role)) >= num_devices // width:
            group.append(node)
        if len(group) == width:
            space.exclusive.update(member.name for member in group)
            yield tuple(group)
            group = []


def _packed(
    role: Role, candidates: tuple[Node, ...], space: _Space, num_devices: int
) -> Iterator[tuple[Node, ...]]:
    """The first node with room, again and again. Instances of a role are alike: a full node stays full."""
    for node in candidates:
        while node.name not in space.exclusive and len(space.usable(node, role)) >= num_devices:
            yield (node,)


def _spread(candidates: tuple[Node, ...], space: _Space) -> Iterator[tuple[Node, ...]]:
    heap = [
        (space.num_processes[node.name], order, node)
        for order, node in enumerate(candidates)
        if node.name not in space.exclusive
    ]
    heapq.heapify(heap)
    while heap:
        load, order, node = heapq.heappop(heap)
        yield (node,)
        heapq.heappush(heap, (load + 1, order, node))


def _no_room(
    topology: Topology, role: Role, candidates: tuple[Node, ...], *, index: int, num_devices: int
) -> Diagnostic:
    span = topology.source.key(role.name, "instances")
    placed = f"{index} of {role.instances} instances of `{role.name}` found room"
    cluster = f"the cluster has {len(candidates)} {_plural(len(candidates), 'node')} for it"
    if role.nodes is not None:
        return Diagnostic(
            code="PD402",
            message=f"`{role.name}-{index}` needs {role.nodes} free {_plural(role.nodes, 'node')}",
            span=span,
            path=f"{role.name}.instances",
            notes=(placed, cluster),
            help=f"raise `cluster.nodes`, or lower `{role.name}.instances` or `{role.name}.nodes`",
        )
    largest = max((node.num_devices for node in candidates), default=0)
    chosen = (f"it may use devices {', '.join(map(str, role.device_order))}",) if role.device_order else ()
    return Diagnostic(
        code="PD401",
        message=f"`{role.name}-{index}` needs {num_devices} free devices on one node",
        span=span,
        path=f"{role.name}.instances",
        notes=(placed, f"{cluster}, with at most {largest} devices each", *chosen),
        help=f"raise `cluster.nodes`, lower `{role.name}.instances`, or spread it with `{role.name}.nodes`",
    )


def _nothing_to_share(topology: Topology, role: Role, *, index: int, num_devices: int | None) -> Diagnostic:
    owner = f"{role.devices_of}-{index}"
    wanted = role.devices or role.parallel.num_devices
    found = f"there is no `{owner}`" if num_devices is None else f"`{owner}` has {num_devices} of them"
    return Diagnostic(
        code="PD412",
        message=f"`{role.name}-{index}` has no {wanted} {_plural(wanted, 'device')} to share: {found}",
        span=topology.source.key(role.name, "devices_of"),
        path=f"{role.name}.devices_of",
        notes=(f"`{role.name}-k` runs on the devices of `{role.devices_of}-k`",),
        help="give both roles the same width, and this one no more instances than the other",
    )


def _router_node(topology: Topology, inventory: Inventory) -> Node | Diagnostic:
    name = topology.router.on
    if name is None:
        return inventory.nodes[0]
    node = inventory.node(name)
    if node is not None:
        return node
    return Diagnostic(
        code="PD403",
        message=f"`router.on` names `{name}`, which is no node of the cluster",
        span=topology.source.value("router", "on"),
        path="router.on",
        notes=(f"the cluster has {', '.join(each.name for each in inventory.nodes[:8])}",),
    )


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"
