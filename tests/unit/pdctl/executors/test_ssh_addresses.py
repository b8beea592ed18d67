"""What nodes say about themselves, and what becomes of it."""

from __future__ import annotations

import json

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.link import NodeLink
from pdctl.executors.shell import Completed
from pdctl.executors.ssh_addresses import Answer, Exit, decided, with_addresses
from pdctl.executors.ssh_faults import refused
from pdctl.inventory import IncompleteInventoryError, Node, declared
from pdctl.topology.model import AUTO, Cluster, Host


def _told(host: Host, **exits: Exit) -> Node:
    inventory = declared(Cluster(nodes=(host, Host(name="other", address="10.0.0.9"))))
    answer = Answer(login=Exit(address="192.168.0.1", interface="mgmt"), exits=exits)
    found = decided(inventory, (host,), {host.name: answer})
    assert found.nodes[1] == inventory.nodes[1]
    return found.nodes[0]


def _fault(host: Host, **exits: Exit) -> tuple[str, str, tuple[str, ...]]:
    with pytest.raises(DiagnosticError) as caught:
        _told(host, **exits)
    (fault,) = caught.value.diagnostics
    return fault.code, fault.message, fault.notes


FIRST = Exit(address="10.0.0.1", interface="eth0")
SECOND = Exit(address="10.1.0.1", interface="eth1")


def test_the_exit_towards_the_peers_is_taken_not_the_one_of_the_login():
    node = _told(Host(name="n1", address=AUTO, interface=AUTO), n2=FIRST, n3=FIRST)
    assert (node.address, node.interface) == ("10.0.0.1", "eth0")


def test_what_the_document_states_is_kept():
    node = _told(Host(name="n1", address="10.0.0.7", interface=AUTO), n2=FIRST)
    assert (node.address, node.interface) == ("10.0.0.7", "eth0")
    node = _told(Host(name="n1", address=AUTO, interface="bond0"), n2=FIRST)
    assert (node.address, node.interface) == ("10.0.0.1", "bond0")
    assert _told(Host(name="n1", address=AUTO), n2=FIRST).interface is None


def test_a_node_without_peers_has_the_address_of_its_login():
    node = _told(Host(name="n1", address=AUTO, interface=AUTO))
    assert (node.address, node.interface) == ("192.168.0.1", "mgmt")


def test_different_answers_for_different_peers_are_no_guess():
    code, message, notes = _fault(Host(name="n1", address=AUTO), n2=FIRST, n3=FIRST, n4=SECOND)
    assert (code, message) == ("PD525", "`n1` has no one address for all its peers")
    assert notes == ("10.0.0.1 towards n[2-3]", "10.1.0.1 towards n4")
    code, message, notes = _fault(Host(name="n1", address="a", interface=AUTO), n2=FIRST, n3=SECOND)
    assert (code, notes) == ("PD525", ("eth0 towards n2", "eth1 towards n3"))


def test_peers_that_are_unknown_there_are_told_together():
    lost = Exit(error="`gpu` has no address there: name or service not known")
    code, message, _ = _fault(Host(name="n1", address=AUTO), n2=lost, n3=lost, n4=FIRST)
    assert code == "PD526"
    assert message.endswith("name or service not known (towards n[2-3])")


def test_a_way_that_ends_on_the_node_itself_is_none():
    loop = Exit(address="127.0.0.1", interface="lo")
    assert _fault(Host(name="n1", address=AUTO), n2=loop)[1].endswith("n2 is the node itself there")


def test_all_doubtful_nodes_are_told_at_once():
    hosts = (Host(name="n1", address=AUTO), Host(name="n2", address=AUTO))
    answers = {host.name: Answer(login=None, exits={}) for host in hosts}
    with pytest.raises(DiagnosticError) as caught:
        decided(declared(Cluster(nodes=hosts)), hosts, answers)
    assert [each.code for each in caught.value.diagnostics] == ["PD526", "PD526"]


class _Host:
    """A shell where every packet leaves from one address; None: the host is down."""

    def __init__(self, address: str | None) -> None:
        self._address = address

    def run(self, argv, *, stdin=b"", timeout_s):
        if self._address is None:
            raise refused(22)
        exit = {"address": self._address, "interface": "eth0", "error": None}
        routes = [exit for _ in json.loads(stdin)["targets"]]
        return Completed(code=0, stdout=json.dumps({"login": exit, "routes": routes}).encode(), stderr=b"")


def test_a_node_that_cannot_be_asked_is_told_and_the_others_have_their_addresses():
    addresses = {"n1": "10.0.0.1", "n2": None, "n3": "10.0.0.3"}
    cluster = Cluster(nodes=tuple(Host(name=name, address=AUTO) for name in addresses))
    links = {
        name: NodeLink(name=name, shell=_Host(address), python="py", root="/runs")
        for name, address in addresses.items()
    }
    with pytest.raises(IncompleteInventoryError) as caught:
        with_addresses(cluster, declared(cluster), links, fan_out=8)
    assert [each.message for each in caught.value.diagnostics] == [
        "n2 can't be reached: the connection to port 22 was refused"
    ]
    assert [node.address for node in caught.value.inventory.nodes] == ["10.0.0.1", "n2", "10.0.0.3"]
