"""Topologies and nodes to plan with, as values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl import plugins
from pdctl.compiler import Programs
from pdctl.inventory import Inventory, Node
from pdctl.topology.model import Topology

MakeTopology = Callable[..., Topology]


@pytest.fixture
def make_topology() -> MakeTopology:
    """One prefill and one decode on this machine; keywords replace top-level fields, `role={…}` a role's."""
    from pdctl.topology.model import Engine, Model, Role

    def make(
        *, prefill: dict[str, object] | None = None, decode: dict[str, object] | None = None, **fields: object
    ) -> Topology:
        base: dict[str, object] = {
            "schema": "pdctl/v1",
            "name": "test",
            "model": Model(path="/models/tiny"),
            "engine": Engine(kind="reference"),
        }
        return Topology(
            **{
                **base,
                "prefill": Role(**{"name": "prefill", **(prefill or {})}),
                "decode": Role(**{"name": "decode", **(decode or {})}),
                **fields,
            }
        )

    return make


@pytest.fixture
def make_inventory() -> Callable[..., Inventory]:
    def make(num_nodes: int = 1, num_devices: int = 0) -> Inventory:
        return Inventory(
            nodes=tuple(
                Node(name=f"n{number}", address=f"10.0.0.{number}", num_devices=num_devices)
                for number in range(1, num_nodes + 1)
            )
        )

    return make


@pytest.fixture
def reference_programs() -> Programs:
    engine = plugins.program("engines", "reference")
    router = plugins.program("routers", "mini_lb")
    assert engine is not None
    assert router is not None
    return Programs(engine=engine, router=router)
