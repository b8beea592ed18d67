"""`address: auto` and `interface: auto` on real hosts with more than one network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.executors import ssh
from pdctl.inventory import Node
from pdctl.topology.model import Cluster, Host, HostSsh, Ssh
from tests.testbed.hosts.host_set import HostSet
from tests.testbed.hosts.host_spec import HostSpec

# A second network of n1, with an address of n3 in it: no packet has to pass.
SECOND = """\
ip link add fabric0 type veth peer name fabric1
ip addr add 10.99.0.1/24 dev fabric0
ip link set fabric0 up
ip link set fabric1 up
"""


@pytest.fixture(scope="module")
def hosts(make_hosts: Callable[..., HostSet]) -> HostSet:
    return make_hosts(n1=HostSpec(), n2=HostSpec(login_shell="/usr/bin/fish"), n3=HostSpec())


@pytest.fixture
def second_network(hosts: HostSet) -> Iterator[None]:
    hosts["n1"].console("sh", "-c", SECOND)
    yield
    hosts["n1"].console("ip", "link", "del", "fabric0")


def _acquired(hosts: HostSet, folder: Path, *nodes: Host) -> tuple[Node, ...]:
    settings = Ssh(config=str(hosts.ssh_config), connect_timeout_s=5.0)
    cluster = Cluster(executor="ssh", nodes=nodes, ssh=settings)
    return ssh.create(cluster, {"HOME": str(folder)}).acquire(cluster).nodes


def test_nodes_tell_the_address_and_interface_on_the_way_to_their_peers(hosts, tmp_path):
    found = _acquired(
        hosts,
        tmp_path,
        Host(name="n1", address="auto", interface="auto"),
        Host(name="gpu", address="auto", ssh=HostSsh(host="n2")),
        Host(name="n3", address=hosts["n3"].address, interface="auto"),
    )
    assert [(node.address, node.interface) for node in found] == [
        (hosts["n1"].address, "eth0"),
        (hosts["n2"].address, None),
        (hosts["n3"].address, "eth0"),
    ]


def test_one_node_alone_has_the_address_that_it_is_logged_in_by(hosts, tmp_path):
    (node,) = _acquired(hosts, tmp_path, Host(name="n1", address="auto", interface="auto"))
    assert (node.address, node.interface) == (hosts["n1"].address, "eth0")


def test_ipv6_addresses_have_interfaces_too(hosts, tmp_path):
    login = HostSsh(host=hosts["n1"].address6, user="root")
    (node,) = _acquired(hosts, tmp_path, Host(name="n1", address="auto", interface="auto", ssh=login))
    assert (node.address, node.interface) == (hosts["n1"].address6, "eth0")


@pytest.mark.usefixtures("second_network")
def test_a_node_in_two_networks_is_asked_to_be_told_apart(hosts, tmp_path):
    with pytest.raises(DiagnosticError) as caught:
        _acquired(
            hosts,
            tmp_path,
            Host(name="n1", address="auto"),
            Host(name="n2", address="auto"),
            Host(name="n3", address="10.99.0.3"),
        )
    (fault, *_) = caught.value.diagnostics
    assert (fault.code, fault.notes) == (
        "PD525",
        (f"{hosts['n1'].address} towards n2", "10.99.0.1 towards n3"),
    )


def test_a_peer_whose_name_means_the_node_itself_there_is_told(hosts, tmp_path):
    with pytest.raises(DiagnosticError) as caught:
        _acquired(hosts, tmp_path, Host(name="n1", address="auto"), Host(name="peer", address="localhost"))
    (fault,) = caught.value.diagnostics
    assert (fault.code, fault.message) == (
        "PD526",
        "`n1` can't tell how its peers reach it: peer is the node itself there",
    )


def test_nodes_that_cannot_be_asked_are_told_together(hosts, tmp_path):
    hosts["n1"].refuse(22)
    hosts["n2"].refuse(22)
    try:
        with pytest.raises(DiagnosticError) as caught:
            _acquired(hosts, tmp_path, *(Host(name=name, address="auto") for name in ("n1", "n2", "n3")))
    finally:
        hosts["n1"].heal()
        hosts["n2"].heal()
    (fault,) = caught.value.diagnostics
    assert fault.message == "n[1-2] can't be reached: the connection to port 22 was refused"
