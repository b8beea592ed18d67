"""Where every process of a deployment lies: the middle form between topology and launch plan."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.inventory import Node
from pdctl.plan.model import Endpoint, PortClaim, RoleKind
from pdctl.topology.model import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One process to be: its place and its ports, not yet its command."""

    role: RoleKind
    index: int  # of its instance within the role
    node_rank: int
    node: Node
    device_indices: tuple[int, ...] = ()
    ports: tuple[PortClaim, ...] = ()

    @property
    def instance_id(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def id(self) -> str:
        return f"{self.instance_id}.{self.node_rank}"

    @property
    def is_leader(self) -> bool:
        return self.node_rank == 0

    def endpoint(self, name: str) -> Endpoint:
        """Where peers reach one of its ports; KeyError when it has no port of that name."""
        claim = next((claim for claim in self.ports if claim.name == name), None)
        if claim is None:
            raise KeyError(f"{self.id} has no port named {name}")
        return Endpoint(host=self.node.address, port=claim.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """All slots of a deployment, in start order, with the topology that they come from."""

    topology: Topology
    slots: tuple[Slot, ...]

    def engine_python(self, node: Node) -> str:
        """The interpreter that runs the engine there: the node's own word, then the topology's."""
        return node.engine_python or self.topology.engine.python or node.python

    def model_path(self, node: Node) -> str:
        return node.model_path or self.topology.model.path

    def leaders(self, role: RoleKind) -> tuple[Slot, ...]:
        return tuple(slot for slot in self.slots if slot.role is role and slot.is_leader)

    def leader(self, slot: Slot) -> Slot:
        """The leader of the instance that `slot` belongs to."""
        return next(each for each in self.slots if each.instance_id == slot.instance_id and each.is_leader)
