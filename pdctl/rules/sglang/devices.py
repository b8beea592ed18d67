"""SGLang computes on accelerators, unless it is told otherwise."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic
from pdctl.inventory import declared
from pdctl.program import Rule
from pdctl.rules.base import at_value, stated_arg
from pdctl.rules.sglang.processes import process_variables
from pdctl.rules.sglang.reading import is_true, word
from pdctl.topology.model import Role, Topology

_CPU_VARIABLE = "SGLANG_USE_CPU_ENGINE"  # what makes `auto` a CPU (srt/utils/common.py, get_device)


def _accelerators_are_counted(topology: Topology) -> Iterable[Diagnostic]:
    """Without a count, instances are planned like those of CPUs: on one node, each on all that it finds."""
    bare = [
        role for role in topology.roles if _has_no_devices(topology, role) and not _is_cpu(topology, role)
    ]
    if bare:
        yield at_value(
            topology,
            ("cluster", "devices_per_node"),
            "PD246",
            f"no node for {' and '.join(f'`{role.name}`' for role in bare)} has accelerators",
            notes=("SGLang takes a GPU unasked; instances of one node would share those that they find",),
            help="set `cluster.devices_per_node`, or `defaults.args.device: cpu` to compute on CPUs",
        )


def _has_no_devices(topology: Topology, role: Role) -> bool:
    nodes = declared(topology.cluster).nodes
    return not any(node.num_devices for node in nodes if not role.on or node.name in role.on)


def _is_cpu(topology: Topology, role: Role) -> bool:
    if word(stated_arg(topology, role, "device")) == "cpu":
        return True
    return all(
        is_true(variables.get(_CPU_VARIABLE))
        for variables in process_variables(topology, role, _CPU_VARIABLE)
    )


RULES = (Rule(code="PD246", check=_accelerators_are_counted),)
