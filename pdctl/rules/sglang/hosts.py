"""The address that SGLang's ranks give their peers, where the document says it by a variable."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic
from pdctl.inventory import declared
from pdctl.plan.model import RoleKind
from pdctl.plan.placement import place
from pdctl.program import Rule
from pdctl.rules.base import Stated, at_value
from pdctl.rules.network import is_loopback, is_unspecified
from pdctl.rules.sglang.processes import process_variables
from pdctl.topology.model import Role, Topology

_VARIABLE = "SGLANG_HOST_IP"  # HOST_IP counts only without it, and plans set it


def _peers_can_reach_ranks(topology: Topology) -> Iterable[Diagnostic]:
    """srt/utils/network.py, get_local_ip_auto: what it says goes to the peers as it is."""
    if len(declared(topology.cluster).nodes) == 1:
        return
    for role in topology.roles:
        for variables in process_variables(topology, role, _VARIABLE):
            stated = variables.get(_VARIABLE)
            if stated is None or "env" not in stated.path:
                continue  # the address of the node, which is looked at where it stands
            why = _why_unreachable(topology, role, stated)
            if why is not None:
                yield at_value(
                    topology,
                    stated.path,
                    "PD424",
                    f"`{_VARIABLE}: {stated.value}` {why}",
                    notes=("the other role would look for KV cache at that address",),
                    help="remove it, and set the `address` of each of `cluster.nodes`",
                )


def _why_unreachable(topology: Topology, role: Role, stated: Stated) -> str | None:
    address = str(stated.value)
    if is_unspecified(address):
        return "is where a server may listen, and nowhere to connect to"
    if is_loopback(address):
        return "means another machine on each node"
    num_nodes = 1 if stated.path[0] == "cluster" else _num_nodes(topology, role)
    return f"would be the address of {num_nodes} nodes" if num_nodes > 1 else None


def _num_nodes(topology: Topology, role: Role) -> int:
    """Nodes with processes of the role."""
    slots = place(topology, declared(topology.cluster)).slots
    return len({slot.node.name for slot in slots if slot.role is RoleKind(role.name)})


RULES = (Rule(code="PD424", check=_peers_can_reach_ranks),)
