"""The nodes that exist, as far as planning needs to know them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine. `address` is how its peers reach it; zero devices means that engines run on its CPUs."""

    name: str
    address: str
    num_devices: int = 0
    num_cpus: int | None = None  # None: not known before the node is reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    nodes: tuple[Node, ...]

    def node(self, name: str) -> Node | None:
        return next((node for node in self.nodes if node.name == name), None)
