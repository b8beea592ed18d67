"""How a plan says its nodes are reached, and whose word counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdctl.compiler import compile_plan
from pdctl.inventory import declared
from pdctl.lifecycle.access import cluster_of, reached_as
from pdctl.plan.model import LaunchPlan
from pdctl.topology.model import Cluster, Host, HostSsh, Ssh


@pytest.fixture
def plan(make_topology, reference_programs) -> LaunchPlan:
    """Of ada: her key, n1 by its address and n2, whose address it told itself, by its name."""
    hosts = (Host(name="n1", address="10.0.0.1"), Host(name="n2", address="auto"))
    cluster = Cluster(executor="ssh", nodes=hosts, ssh=Ssh(identity_file="/home/ada/key"))
    topology = make_topology(cluster=cluster, prefill={"on": ("n1",)}, decode={"on": ("n2",)})
    nodes = declared(cluster).nodes
    found = (nodes[0], replace(nodes[1], address="10.0.0.2"))
    return compile_plan(topology, replace(declared(cluster), nodes=found), reference_programs)


def test_a_plan_alone_is_enough_to_reach_its_nodes_again(plan):
    cluster = cluster_of(plan)
    assert (cluster.executor, cluster.ssh) == ("ssh", Ssh(identity_file="/home/ada/key"))
    assert not isinstance(cluster.nodes, int)
    assert [(host.name, host.ssh.host or host.address) for host in cluster.nodes] == [
        ("n1", "10.0.0.1"),
        ("n2", "n2"),
    ]


def test_another_operator_reaches_what_is_in_force_in_their_own_way(plan):
    nodes = (replace(plan.nodes[0], ssh=HostSsh(user="bob")),)
    bobs = replace(plan, ssh=Ssh(identity_file="/home/bob/key"), nodes=nodes, processes=(), digest="other")
    reached = reached_as(plan, bobs)
    assert reached.ssh == Ssh(identity_file="/home/bob/key")
    assert [node.ssh for node in reached.nodes] == [HostSsh(user="bob"), HostSsh(host="n2")]
    assert (reached.processes, reached.digest) == (plan.processes, plan.digest)


def test_a_topology_that_names_another_state_directory_does_not_move_what_is_in_force(plan):
    moved = replace(plan, ssh=Ssh(user="bob", state_dir="/new"))
    reached = reached_as(plan, moved)
    assert reached.ssh == Ssh(user="bob")
    placed = replace(plan, ssh=Ssh(state_dir="/old"))
    assert [node.ssh.state_dir for node in reached_as(placed, moved).nodes] == ["/old", "/old"]
