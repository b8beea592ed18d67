"""Nodes, as far as the document alone tells."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Found = Callable[..., list[str]]

HOSTS = "cluster: {nodes: [{name: alpha, address: 127.0.1.1}, {name: beta, address: 127.0.1.2}]}\n"


def test_nodes_that_the_document_lists_may_be_named(found: Found) -> None:
    assert (
        found(HOSTS + "prefill: {on: [alpha]}\ndecode: {on: [beta, alpha]}\nrouter: {on: beta}\n", "PD403")
        == []
    )


def test_nodes_that_it_does_not_list_are_refused(found: Found) -> None:
    assert found(HOSTS + "prefill: {on: [alpha, alfa]}\nrouter: {on: gamma}\n", "PD403") == [
        "error 2:23 `alfa` is no node of the cluster",
        "error 3:14 `gamma` is no node of the cluster",
    ]


def test_counted_nodes_have_names_that_only_the_executor_knows(found: Found) -> None:
    assert found("cluster: {nodes: 1}\nprefill: {on: [anything]}\n", "PD403") == []


def test_a_name_stands_once_in_each_list(found: Found) -> None:
    lines = "cluster: {nodes: [{name: a}, {name: b}, {name: a}]}\n"
    lines += "prefill: {on: [a, b]}\ndecode: {on: [b, a, b]}\n"
    assert found(lines, "PD406") == [
        "error 1:48 the node `a` is listed twice",
        "error 3:21 the node `b` is listed twice",
    ]


def test_an_address_stands_once(found: Found) -> None:
    assert found(HOSTS, "PD407") == []
    assert found(HOSTS.replace("127.0.1.2", "127.0.1.1"), "PD407") == [
        "error 1:76 the address `127.0.1.1` is listed twice"
    ]


SSH_HOSTS = "cluster: {executor: ssh, nodes: [{name: alpha, %s}, {name: beta, %s}]}\n"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("address: 10.0.0.1", 'address: "::ffff:10.0.0.1"'),
        ("address: gpu1.example", "address: GPU1.example."),
        ("address: beta", "devices: 0"),  # a host without an address is reached by its name
    ],
)
def test_an_address_in_other_words_is_the_same_address(found: Found, one: str, other: str) -> None:
    assert len(found(SSH_HOSTS % (one, other), "PD407")) == 1


def test_a_host_without_an_address_is_no_second_one_with_its_own_name(found: Found) -> None:
    assert found(SSH_HOSTS % ("devices: 0", "address: 10.0.0.2"), "PD407") == []
    assert found(SSH_HOSTS.replace("beta", "alpha") % ("devices: 0", "devices: 0"), "PD407") == []


def test_two_nodes_at_one_login_are_one_machine(found: Found) -> None:
    one, other = "address: auto, ssh: {host: gate}", "address: 10.0.0.2, ssh: {host: GATE}"
    assert found(SSH_HOSTS % (one, other), "PD435") == [
        "error 1:127 `beta` and `alpha` are logged in to at one place, `GATE`"
    ]
    assert len(found(SSH_HOSTS % ("address: auto", "address: auto, ssh: {host: alpha}"), "PD435")) == 1


@pytest.mark.parametrize("difference", ["port: 2222", "user: second"])
def test_ports_and_accounts_tell_machines_behind_one_gateway_apart(found: Found, difference: str) -> None:
    one, other = "address: auto, ssh: {host: gate}", f"address: auto, ssh: {{host: gate, {difference}}}"
    assert found(SSH_HOSTS % (one, other), "PD435") == []


def test_the_local_executor_has_one_node(found: Found) -> None:
    assert found("cluster: {executor: local, nodes: 1}\n", "PD408") == []
    assert found("cluster: {nodes: 3}\n", "PD408") == [
        "error 1:18 the `local` executor has one node, this machine; found 3"
    ]
    assert len(found(HOSTS, "PD408")) == 1


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", '"::1"', "localhost"])
def test_loopback_addresses_are_local(found: Found, address: str) -> None:
    assert found(f"cluster: {{nodes: [{{name: a, address: {address}}}]}}\n", "PD408") == []


@pytest.mark.parametrize("address", ["10.0.0.1", "gpu-1.example", '"2001:db8::1"'])
def test_other_addresses_may_be_of_this_machine_so_they_are_a_warning(found: Found, address: str) -> None:
    (fault,) = found(f"cluster: {{nodes: [{{name: a, address: {address}}}]}}\n", "PD408")
    assert fault.startswith("warning 1:")


def test_devices_to_take_are_there_and_listed_once(found: Found) -> None:
    cluster = "cluster: {devices_per_node: 8}\n"
    assert found(cluster + "prefill: {device_order: [7, 0]}\n", "PD433") == []
    assert found(cluster + "prefill: {device_order: [0, 9, 0]}\n", "PD433") == [
        "error 2:29 there is no device 9: nodes have 8, counted from 0",
        "error 2:32 device 0 is listed twice",
    ]
    hosts = "cluster: {nodes: [{name: a, address: 127.0.0.1, devices: 4}]}\n"
    assert len(found(hosts + "decode: {on: [a], device_order: [4]}\n", "PD433")) == 1
    assert found("decode: {device_order: [4]}\n", "PD433") == []  # on CPUs, devices are not told apart
