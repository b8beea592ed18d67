"""Addresses and interfaces that a topology leaves to its nodes (`auto`): those of the way to their peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.executors.fan_out import at_once
from pdctl.executors.link import NodeLink, lost_node, unreachable_nodes
from pdctl.executors.shell import UnreachableError
from pdctl.fields import Fields
from pdctl.hostlist import fold
from pdctl.inventory import IncompleteInventoryError, Inventory
from pdctl.topology.model import AUTO, Cluster, Host

Links = Mapping[str, NodeLink]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """Where packets leave a node; `error` says why they can't."""

    address: str | None = None
    interface: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one node says: where its login came in, and its exit towards each peer."""

    login: Exit | None
    exits: Mapping[str, Exit]  # by the peer's name


def with_addresses(cluster: Cluster, inventory: Inventory, links: Links, *, fan_out: int) -> Inventory:
    """Ask the nodes that have something to tell, and only those. Raises `DiagnosticError` with all faults,
    `IncompleteInventoryError` where all of them are nodes that could not be asked.
    """
    hosts = () if isinstance(cluster.nodes, int) else cluster.nodes
    asked = tuple(host for host in hosts if AUTO in (host.address, host.interface))
    if not asked:
        return inventory
    # First where each can be found at all: what peers are told to look for must be an address.
    logins, faults = _ask(links, {host.name: {} for host in asked}, fan_out)
    asked = tuple(host for host in asked if host.name in logins)
    lost = {host.name for host in hosts if AUTO in (host.address, host.interface)} - logins.keys()
    found = {host.name: _findable(host, logins.get(host.name)) for host in hosts if host.name not in lost}
    peers = {
        host.name: {name: address for name, address in found.items() if name != host.name and address}
        for host in asked
    }
    answers = logins
    if len(found) > 1:
        answers, more = _ask(links, peers, fan_out)
        faults += more
    decision = decided(inventory, [host for host in asked if host.name in answers], answers)
    if faults:
        raise IncompleteInventoryError(faults, decision)
    return decision


def decided(inventory: Inventory, asked: Sequence[Host], answers: Mapping[str, Answer]) -> Inventory:
    """Lay what the nodes say over the inventory. Pure; raises `DiagnosticError` with every doubt."""
    faults: list[Diagnostic] = []
    told: dict[str, Exit] = {}
    for host in asked:
        answer = answers[host.name]
        faults += _doubts(host, answer)
        told[host.name] = next(
            (each for each in answer.exits.values() if each.address), answer.login or Exit()
        )
    if faults:
        raise DiagnosticError(faults)
    wants = {host.name: host for host in asked}
    return Inventory(
        nodes=tuple(
            replace(
                node,
                address=told[node.name].address or node.address
                if wants[node.name].address == AUTO
                else node.address,
                interface=told[node.name].interface if wants[node.name].interface == AUTO else node.interface,
            )
            if node.name in wants
            else node
            for node in inventory.nodes
        )
    )


def _findable(host: Host, answer: Answer | None) -> str | None:
    """An address that is surely this host's, if not the one that its peers should use."""
    if host.address not in (None, AUTO):
        return host.address
    if answer is not None and answer.login is not None:
        return answer.login.address
    return host.name


def _doubts(host: Host, answer: Answer) -> list[Diagnostic]:
    if not answer.exits and answer.login is None:
        return [_unknown(host, "it was not logged in to through sshd")]
    broken = {peer: exit.error for peer, exit in answer.exits.items() if exit.error is not None}
    if broken:
        return [
            _unknown(host, f"{words} (towards {fold(peer for peer in broken if broken[peer] == words)})")
            for words in dict.fromkeys(broken.values())
        ]
    exits = answer.exits or {host.name: answer.login or Exit()}
    for peer, exit in exits.items():
        if exit.address is None or ip_address(exit.address).is_loopback:
            return [_unknown(host, f"{peer} is the node itself there")]
        if host.interface == AUTO and exit.interface is None:
            return [_unknown(host, f"no interface has the address {exit.address}")]
    if host.address == AUTO:
        several = _several(host, "address", {peer: exit.address or "" for peer, exit in exits.items()})
    else:
        several = _several(host, "interface", {peer: exit.interface or "" for peer, exit in exits.items()})
    return several


def _several(host: Host, noun: str, by_peer: Mapping[str, str]) -> list[Diagnostic]:
    if len(set(by_peer.values())) < 2:
        return []
    notes = tuple(
        f"{value} towards {fold(peer for peer in by_peer if by_peer[peer] == value)}"
        for value in dict.fromkeys(by_peer.values())
    )
    return [
        Diagnostic(
            code="PD525",
            message=f"`{host.name}` has no one {noun} for all its peers",
            notes=notes,
            help=f"set `{noun}` of the node to the one that all of them reach",
        )
    ]


def _unknown(host: Host, why: str) -> Diagnostic:
    return Diagnostic(
        code="PD526",
        message=f"`{host.name}` can't tell how its peers reach it: {why}",
        help="set `address` and `interface` of the node",
    )


def _ask(
    links: Links, targets: Mapping[str, Mapping[str, str]], fan_out: int
) -> tuple[dict[str, Answer], list[Diagnostic]]:
    """`targets` are addresses of peers, by node and by the peer's name. Answers by node, and why others gave
    none.
    """

    def ask(node: str) -> Answer:
        wanted = targets[node]
        answer = links[node].call("route", (), {"targets": list(wanted.values())}).object("answer")
        login = answer.optional_object("login")
        exits = (_exit(each) for each in answer.objects("routes"))
        return Answer(
            login=None if login is None else _exit(login), exits=dict(zip(wanted, exits, strict=True))
        )

    names = tuple(targets)
    answers: dict[str, Answer] = {}
    lost: dict[str, UnreachableError] = {}
    faults: list[Diagnostic] = []
    for name, answer in zip(names, at_once(ask, names, fan_out=fan_out), strict=True):
        match answer:
            case Answer():
                answers[name] = answer
            case UnreachableError():
                lost[name] = answer
            case DiagnosticError():
                faults += answer.diagnostics
            case _:
                raise answer
    found = [lost_node(name, error) for name, error in lost.items()]
    return answers, [*unreachable_nodes(found).diagnostics, *faults]


def _exit(fields: Fields) -> Exit:
    return Exit(
        address=fields.optional_text("address"),
        interface=fields.optional_text("interface"),
        error=fields.optional_text("error"),
    )
