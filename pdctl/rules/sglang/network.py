"""Ports and network interfaces, as SGLang uses them."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.plan.ports import BOOTSTRAP_BASE, DECODE_HTTP_BASE, PREFILL_HTTP_BASE
from pdctl.program import Rule
from pdctl.rules.base import Stated, at_value
from pdctl.rules.sglang.processes import process_variables
from pdctl.rules.sglang.reading import number
from pdctl.topology.model import Role, Topology
from pdctl.topology.source import DocumentPath

# Ranges that SGLang and its libraries draw ports from at random (srt/server_args.py PortArgs, pyzmq's random
# bind, Mooncake's MC_MIN_RPC_PORT and MC_MAX_RPC_PORT), and Linux's for outgoing connections.
_DRAWN: tuple[tuple[int, int, str], ...] = (
    (15000, 17000, "Mooncake draws its RPC ports"),
    (22000, 29999, "SGLang draws NCCL's port"),
    (32768, 60999, "Linux draws the ports of outgoing connections"),
    (49152, 65535, "SGLang draws the sockets between ranks"),
)

_GLOO, _NCCL = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"


_LOWEST, _HIGHEST = "MC_MIN_RPC_PORT", "MC_MAX_RPC_PORT"


def _mooncake_draws_elsewhere(topology: Topology) -> Iterable[Diagnostic]:
    """mooncake-transfer-engine/src/config.cpp: the range that a document may move onto a plan's own ports."""
    for role in topology.roles:
        http = role.port or (PREFILL_HTTP_BASE if role.name == "prefill" else DECODE_HTTP_BASE)
        own = {http} | ({role.bootstrap_port or BOOTSTRAP_BASE} if role.name == "prefill" else set[int]())
        for variables in process_variables(topology, role, _LOWEST, _HIGHEST):
            low, high = variables.get(_LOWEST), variables.get(_HIGHEST)
            lowest, highest = number(low) or _DRAWN[0][0], number(high) or _DRAWN[0][1]
            stated, taken = low or high, [port for port in sorted(own) if lowest <= port <= highest]
            if stated is not None and taken:
                yield at_value(
                    topology,
                    stated.path,
                    "PD434",
                    f"Mooncake may draw port {taken[0]}, where {role.name} listens",
                    severity=Severity.WARNING,
                    notes=(f"it draws its RPC ports from {lowest} to {highest}",),
                    help=f"set `{_LOWEST}` and `{_HIGHEST}` to a range that no port of the plan is in",
                )


def _ports_are_drawn_by_nobody(topology: Topology) -> Iterable[Diagnostic]:
    for path, port in _asked(topology):
        reason = next((why for low, high, why in _DRAWN if low <= port <= high), None)
        if reason is not None:
            yield at_value(
                topology,
                path,
                "PD422",
                f"port {port} is where {reason}",
                severity=Severity.WARNING,
                notes=("now and then it will be taken at start, by anyone on the node",),
                help="choose one below 15000, or from 30000 to 32767",
            )


def _asked(topology: Topology) -> Iterable[tuple[DocumentPath, int]]:
    asked: tuple[tuple[DocumentPath, int | None], ...] = (
        (("prefill", "port"), topology.prefill.port),
        (("prefill", "bootstrap_port"), topology.prefill.bootstrap_port),
        (("prefill", "kv_events_port"), topology.prefill.kv_events_port),
        (("decode", "port"), topology.decode.port),
        (("decode", "kv_events_port"), topology.decode.kv_events_port),
        (("router", "port"), topology.router.port),
        (("router", "metrics_port"), topology.router.metrics_port),
    )
    return tuple((path, port) for path, port in asked if port is not None)


def _interfaces_are_named(topology: Topology) -> Iterable[Diagnostic]:
    """Gloo takes one name, where NCCL also takes lists and exclusions; `lo` reaches nobody else."""
    for role in topology.roles:
        for variables in process_variables(topology, role, _GLOO, _NCCL):
            gloo = variables.get(_GLOO)
            if gloo is not None and str(gloo.value)[:1] in ("^", "="):
                yield _no_name_for_gloo(topology, gloo)
            if (role.nodes or 1) > 1:
                alone = ((name, stated) for name, stated in variables.items() if _is_loopback(stated))
                yield from (_reaches_nobody(topology, role, name, stated) for name, stated in alone)


def _is_loopback(stated: Stated) -> bool:
    return str(stated.value).lstrip("=") == "lo"


def _no_name_for_gloo(topology: Topology, gloo: Stated) -> Diagnostic:
    return at_value(
        topology,
        gloo.path,
        "PD423",
        f"Gloo takes the name of an interface, found `{gloo.value}`",
        notes=("exclusions are NCCL's: Gloo looks for an interface of that very name",),
        help="name the interface, in `cluster.nodes[].interface` where nodes differ",
    )


def _reaches_nobody(topology: Topology, role: Role, name: str, stated: Stated) -> Diagnostic:
    return at_value(
        topology,
        stated.path,
        "PD423",
        f"`{name}: {stated.value}` keeps the ranks of `{role.name}` on their own node",
        notes=(f"an instance of it spans {role.nodes} nodes",),
        help="name the interface that the nodes reach each other by",
    )


RULES = (
    Rule(code="PD422", check=_ports_are_drawn_by_nobody),
    Rule(code="PD434", check=_mooncake_draws_elsewhere),
    Rule(code="PD423", check=_interfaces_are_named),
)
