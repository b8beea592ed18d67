"""Ports and addresses that the document asks for can be had, and reached."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.topology.model import Topology
from pdctl.topology.source import DocumentPath

_FIRST_UNPRIVILEGED_PORT = 1024

# As /etc/hosts of common distributions has them; `localhost` and what ends so are by RFC 6761.
_LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})


def _ports_need_no_privilege(topology: Topology) -> Iterable[Diagnostic]:
    asked: tuple[tuple[DocumentPath, int | None], ...] = (
        (("prefill", "port"), topology.prefill.port),
        (("prefill", "bootstrap_port"), topology.prefill.bootstrap_port),
        (("prefill", "kv_events_port"), topology.prefill.kv_events_port),
        (("decode", "port"), topology.decode.port),
        (("decode", "kv_events_port"), topology.decode.kv_events_port),
        (("router", "port"), topology.router.port),
        (("router", "metrics_port"), topology.router.metrics_port),
    )
    for path, port in asked:
        if port is not None and port < _FIRST_UNPRIVILEGED_PORT:
            yield at_value(
                topology,
                path,
                "PD409",
                f"port {port} is below {_FIRST_UNPRIVILEGED_PORT}: only root may listen there",
                severity=Severity.WARNING,
                help=f"use a port from {_FIRST_UNPRIVILEGED_PORT} up, behind a proxy if clients need {port}",
            )


def _bootstrap_has_its_own_port(topology: Topology) -> Iterable[Diagnostic]:
    """SGLang takes equal ones, and the bootstrap server then fails to start, which only its log says."""
    port = topology.prefill.bootstrap_port
    if port is not None and port == topology.prefill.port:
        yield at_value(
            topology,
            ("prefill", "bootstrap_port"),
            "PD425",
            f"`bootstrap_port` and `port` are both {port}",
            notes=("the two servers of an instance listen apart",),
            help="choose another port, or leave one of them out",
        )


def _peers_can_reach_addresses(topology: Topology) -> Iterable[Diagnostic]:
    """The router passes the address of a prefill instance on to decode, which connects to it."""
    nodes = topology.cluster.nodes
    for index, host in enumerate(() if isinstance(nodes, int) else nodes):
        path = ("cluster", "nodes", index, "address")
        address = host.address or host.name
        if is_unspecified(address):
            yield at_value(
                topology,
                path,
                "PD424",
                f"`{address}` is where a server may listen, and nowhere to connect to",
                notes=("decode gets this address from the router, and would call itself",),
                help="set the address that the other nodes reach this one by",
            )
        elif not isinstance(nodes, int) and len(nodes) > 1 and is_loopback(address):
            yield at_value(
                topology,
                path,
                "PD424",
                f"`{address}` means another machine on each of the {len(nodes)} nodes",
                notes=("decode gets this address from the router, and would call itself",),
                help="set the address that the other nodes reach this one by",
            )


def _addresses_have_a_form(topology: Topology) -> Iterable[Diagnostic]:
    """A node without an address is reached by its name."""
    nodes = topology.cluster.nodes
    for index, host in enumerate(() if isinstance(nodes, int) else nodes):
        address = host.address or host.name
        if _has_form(address):
            continue
        yield at_value(
            topology,
            ("cluster", "nodes", index, "name" if host.address is None else "address"),
            "PD125",
            f"`{address}` is neither an IP address nor the name of a host",
            help="leave the port out: each process is given its own" if address.count(":") == 1 else None,
        )


def _has_form(address: str) -> bool:
    """Resolvers read a name of numbers alone as an address (RFC 1123, section 2.1)."""
    is_name = ":" not in address and not address.replace(".", "").isdecimal()
    return is_name or _number(address) is not None


def is_unspecified(address: str) -> bool:
    number = _number(address)
    return number is not None and number.is_unspecified


def is_loopback(address: str) -> bool:
    if address.lower().rstrip(".") in _LOOPBACK_NAMES or address.lower().endswith(".localhost"):
        return True
    number = _number(address)
    return number is not None and number.is_loopback


def canonical(address: str) -> str:
    """The same text for the same address, and for the same name of a host."""
    number = _number(address)
    return address.lower().rstrip(".") if number is None else str(number)


def _number(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address in numbers, an IPv4 one that is wrapped in IPv6 as itself; None for a name."""
    try:
        # Resolvers read digits alone as a number, and 0 as 0.0.0.0.
        number = ipaddress.ip_address(int(address) if address.isdecimal() else address)
    except ValueError:
        return None
    return number.ipv4_mapped or number if isinstance(number, ipaddress.IPv6Address) else number


RULES = (
    Rule(code="PD125", check=_addresses_have_a_form),
    Rule(code="PD409", check=_ports_need_no_privilege),
    Rule(code="PD424", check=_peers_can_reach_addresses),
    Rule(code="PD425", check=_bootstrap_has_its_own_port),
)
