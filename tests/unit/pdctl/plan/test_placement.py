"""Instances on nodes and devices."""

from __future__ import annotations

from pdctl.plan.placement import place
from pdctl.topology.model import Parallel, Router


def places(placement) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(slot.id, slot.node.name, slot.device_indices) for slot in placement.slots]


def test_small_instances_are_packed_on_one_node_with_disjoint_devices(make_topology, make_inventory):
    tp2 = Parallel(tp=2)
    topology = make_topology(
        prefill={"instances": 2, "parallel": tp2}, decode={"instances": 2, "parallel": tp2}
    )
    assert places(place(topology, make_inventory(1, 8))) == [
        ("prefill-0.0", "n1", (0, 1)),
        ("prefill-1.0", "n1", (2, 3)),
        ("decode-0.0", "n1", (4, 5)),
        ("decode-1.0", "n1", (6, 7)),
        ("router-0.0", "n1", ()),
    ]


def test_an_instance_of_several_nodes_takes_an_equal_part_of_its_devices_on_each(
    make_topology, make_inventory
):
    tp16 = Parallel(tp=16)
    topology = make_topology(prefill={"nodes": 2, "parallel": tp16}, decode={"nodes": 2, "parallel": tp16})
    assert places(place(topology, make_inventory(4, 8)))[:4] == [
        ("prefill-0.0", "n1", tuple(range(8))),
        ("prefill-0.1", "n2", tuple(range(8))),
        ("decode-0.0", "n3", tuple(range(8))),
        ("decode-0.1", "n4", tuple(range(8))),
    ]


def test_nodes_of_a_multi_node_instance_are_its_own_even_with_devices_left(make_topology, make_inventory):
    topology = make_topology(
        prefill={"nodes": 1, "parallel": Parallel(tp=2)}, decode={"parallel": Parallel(tp=1)}
    )
    assert [node for _, node, _ in places(place(topology, make_inventory(2, 8)))] == ["n1", "n2", "n1"]


def test_cpu_instances_are_spread_to_the_node_with_the_fewest_processes(make_topology, make_inventory):
    topology = make_topology(prefill={"instances": 2}, decode={"instances": 3})
    nodes = [node for _, node, _ in places(place(topology, make_inventory(3)))]
    assert nodes == ["n1", "n2", "n3", "n1", "n2", "n1"]


def test_on_chooses_the_nodes_and_their_order(make_topology, make_inventory):
    topology = make_topology(
        prefill={"on": ("n3",)}, decode={"instances": 2, "on": ("n2", "n1")}, router=Router(on="n3")
    )
    nodes = [node for _, node, _ in places(place(topology, make_inventory(3)))]
    assert nodes == ["n3", "n2", "n1", "n3"]


def test_too_few_devices_and_too_few_nodes_are_told_together_once_per_role(make_topology, make_inventory):
    topology = make_topology(
        prefill={"instances": 3, "parallel": Parallel(tp=8)}, decode={"nodes": 4, "parallel": Parallel(tp=32)}
    )
    codes = [(each.code, each.message) for each in place(topology, make_inventory(1, 8)).diagnostics]
    assert codes == [
        ("PD401", "`prefill-1` needs 8 free devices on one node"),
        ("PD402", "`decode-0` needs 4 free nodes"),
    ]


def test_unknown_nodes_are_named(make_topology, make_inventory):
    topology = make_topology(prefill={"on": ("n9",)}, router=Router(on="n8"))
    codes = [(each.code, each.path) for each in place(topology, make_inventory(1)).diagnostics]
    assert codes == [("PD403", "prefill.on"), ("PD403", "router.on")]


def test_device_order_says_which_devices_and_in_which_order(make_topology, make_inventory):
    topology = make_topology(
        prefill={"instances": 2, "device_order": (5, 4)}, decode={"parallel": Parallel(tp=2)}
    )
    assert [indices for _, _, indices in places(place(topology, make_inventory(1, 8)))] == [
        (5,),
        (4,),
        (0, 1),
        (),
    ]


def test_devices_that_a_role_may_not_use_are_no_room(make_topology, make_inventory):
    topology = make_topology(decode={"instances": 2, "device_order": (7,)})
    (fault,) = place(topology, make_inventory(1, 8)).diagnostics
    assert (fault.code, fault.notes[-1]) == ("PD401", "it may use devices 7")


def test_instances_on_the_devices_of_others_take_those_of_the_same_number(make_topology, make_inventory):
    topology = make_topology(
        prefill={"instances": 2, "parallel": Parallel(tp=2)},
        decode={"instances": 2, "parallel": Parallel(tp=2), "devices_of": "prefill"},
    )
    assert places(place(topology, make_inventory(1, 4))) == [
        ("prefill-0.0", "n1", (0, 1)),
        ("prefill-1.0", "n1", (2, 3)),
        ("decode-0.0", "n1", (0, 1)),
        ("decode-1.0", "n1", (2, 3)),
        ("router-0.0", "n1", ()),
    ]


def test_devices_can_be_shared_over_several_nodes(make_topology, make_inventory):
    wide = {"nodes": 2, "parallel": Parallel(tp=16)}
    topology = make_topology(prefill=wide, decode={**wide, "devices_of": "prefill"})
    assert [(name, node) for name, node, _ in places(place(topology, make_inventory(2, 8)))][2:4] == [
        ("decode-0.0", "n1"),
        ("decode-0.1", "n2"),
    ]


def test_an_instance_with_nothing_of_its_width_to_share_is_told(make_topology, make_inventory):
    more = make_topology(decode={"instances": 2, "devices_of": "prefill"})
    wider = make_topology(decode={"parallel": Parallel(tp=2), "devices_of": "prefill"})
    for topology, message in (
        (more, "`decode-1` has no 1 device to share: there is no `prefill-1`"),
        (wider, "`decode-0` has no 2 devices to share: `prefill-0` has 1 of them"),
    ):
        (fault,) = place(topology, make_inventory(1, 8)).diagnostics
        assert (fault.code, fault.message) == ("PD412", message)


def test_on_cpu_nodes_sharing_is_being_on_the_same_node(make_topology, make_inventory):
    topology = make_topology(decode={"devices_of": "prefill"})
    assert [node for _, node, _ in places(place(topology, make_inventory(2)))][:2] == ["n1", "n1"]
