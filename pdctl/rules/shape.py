"""The sizes of one instance agree with each other."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.topology.model import Topology


def _attn_dp_divides_tp(topology: Topology) -> Iterable[Diagnostic]:
    for role in topology.roles:
        tp, attn_dp = role.parallel.tp, role.parallel.attn_dp
        if tp % attn_dp:
            yield at_value(
                topology,
                (role.name, "parallel", "attn_dp"),
                "PD201",
                f"`attn_dp: {attn_dp}` doesn't divide `tp: {tp}`",
                notes=("attention is sharded `tp / attn_dp` ways, which must be whole",),
                help=f"set `attn_dp` to one of {_divisors(tp)}",
            )


def _devices_match_parallel(topology: Topology) -> Iterable[Diagnostic]:
    for role in topology.roles:
        wanted = role.parallel.num_devices
        if role.devices is not None and role.devices != wanted:
            yield at_value(
                topology,
                (role.name, "devices"),
                "PD202",
                f"`{role.name}` gives an instance {role.devices} devices, its `parallel` needs {wanted}",
                notes=(f"`tp: {role.parallel.tp}` times `pp: {role.parallel.pp}`",),
                help="remove `devices`: it follows from `parallel`",
            )


def _nodes_share_evenly(topology: Topology) -> Iterable[Diagnostic]:
    for role in topology.roles:
        wanted = role.parallel.num_devices
        if role.nodes is not None and wanted % role.nodes:
            yield at_value(
                topology,
                (role.name, "nodes"),
                "PD203",
                f"{wanted} devices can't be shared evenly by `nodes: {role.nodes}`",
                notes=("every node of an instance runs the same number of ranks",),
                help=f"set `nodes` to one of {_divisors(wanted)}",
            )


def _nodes_are_large_enough(topology: Topology) -> Iterable[Diagnostic]:
    per_node = topology.cluster.devices_per_node
    if per_node == 0 or not isinstance(topology.cluster.nodes, int):
        return  # CPU nodes take any width; listed hosts may differ, and placement knows each
    for role in topology.roles:
        wanted, nodes = role.parallel.num_devices, role.nodes or 1
        if wanted > per_node * nodes:
            yield at_value(
                topology,
                (role.name, "parallel", "tp"),
                "PD204",
                f"an instance of `{role.name}` needs {wanted} devices, {nodes * per_node} are there for it",
                notes=(f"it gets {nodes} of the nodes, and `cluster.devices_per_node` is {per_node}",),
                help=f"set `{role.name}.nodes: {-(-wanted // per_node)}`, or lower `tp` or `pp`",
            )


def _ep_fits_tp(topology: Topology) -> Iterable[Diagnostic]:
    for role in topology.roles:
        tp, ep = role.parallel.tp, role.parallel.ep
        if ep > tp:
            yield at_value(
                topology,
                (role.name, "parallel", "ep"),
                "PD205",
                f"`ep: {ep}` is larger than `tp: {tp}`",
                notes=("experts are split inside the tensor parallel group",),
                help=f"lower `ep` to {tp}, or raise `tp`",
            )
        elif tp % ep:
            # An engine may accept this and split unevenly, so it isn't refused.
            yield at_value(
                topology,
                (role.name, "parallel", "ep"),
                "PD205",
                f"`ep: {ep}` doesn't divide `tp: {tp}`",
                severity=Severity.WARNING,
                notes=("experts are split inside the tensor parallel group",),
                help=f"set `ep` to one of {_divisors(tp)}",
            )


def _divisors(number: int) -> str:
    return ", ".join(str(each) for each in range(1, number + 1) if number % each == 0)


RULES = (
    Rule(code="PD201", check=_attn_dp_divides_tp),
    Rule(code="PD202", check=_devices_match_parallel),
    Rule(code="PD203", check=_nodes_share_evenly),
    Rule(code="PD204", check=_nodes_are_large_enough),
    Rule(code="PD205", check=_ep_fits_tp),
)
