"""Marks for addresses that are not known yet, and where a plan carries them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.inventory import declared
from pdctl.lifecycle.planning import TopologySource, open_plan, plan_file
from pdctl.plan.binding import NodeAddress, Part, marked, parts_of
from pdctl.plan.codec import plan_to_json
from pdctl.topology.model import Cluster, Host

TOPOLOGIES = Path(__file__).parents[4] / "topologies"


def mark(number: int) -> str:
    return marked(declared(Cluster(nodes=20)), Cluster(nodes=20)).nodes[number].address


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        ("--port", ("--port",)),
        (mark(3), (NodeAddress(number=3),)),
        (f"http://{mark(12)}:30000/health", ("http://", NodeAddress(number=12), ":30000/health")),
        (f"{mark(0)},{mark(1)}", (NodeAddress(number=0), ",", NodeAddress(number=1))),
        (f"{mark(1)}{mark(2)}", (NodeAddress(number=1), NodeAddress(number=2))),
        (json.dumps({"at": mark(7)}), ('{"at": "', NodeAddress(number=7), '"}')),
    ],
)  # fmt: skip
def test_a_mark_says_which_node_stands_there(text: str, parts: tuple[Part, ...]) -> None:
    assert parts_of(text) == parts


def test_nodes_that_are_only_counted_keep_their_names_and_get_marks() -> None:
    cluster = Cluster(nodes=2, devices_per_node=8)
    before = declared(cluster)
    after = marked(before, cluster)
    assert [parts_of(node.address) for node in after.nodes] == [
        (NodeAddress(number=0),),
        (NodeAddress(number=1),),
    ]
    assert [replace(node, address=node.name) for node in after.nodes] == list(before.nodes)


def test_an_address_that_the_document_states_stays() -> None:
    hosts = (Host(name="gpu7", address="10.0.0.7"), Host(name="gpu8"), Host(name="gpu9", address="auto"))
    cluster = Cluster(nodes=hosts)
    addresses = [parts_of(node.address) for node in marked(declared(cluster), cluster).nodes]
    assert addresses == [("10.0.0.7",), (NodeAddress(number=1),), (NodeAddress(number=2),)]


@pytest.mark.parametrize("name", ["deepseek_v3", "gb200_mnnvl"])
def test_a_plan_with_marks_is_the_plan_with_its_addresses_taken_out(name: str) -> None:
    """Nothing else depends on how nodes are called: no port, no device, no order."""
    planned = plan_file(TopologySource(path=str(TOPOLOGIES / f"{name}.yaml")))
    text = json.dumps(plan_to_json(open_plan(planned)))
    for number, node in enumerate(declared(planned.topology.cluster).nodes):
        text = text.replace(mark(number), node.name)
    opened, wanted = json.loads(text), plan_to_json(planned.plan)
    for plan in (opened, wanted):
        for digested in (plan, *plan["processes"]):
            del digested["digest"]
    assert opened == wanted
