"""Two instances of SGLang on the same devices: each must say how much of their memory it takes."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.rules.sglang.reading import first_stated
from pdctl.topology.model import Role, Topology

_BOUNDS = ("mem-fraction-static", "max-total-tokens")


def _memory_is_split(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/mem_cache/kv_cache_configurator.py, _profile_available_bytes: the KV pool is what is free
    after the weights are loaded, less the share `1 - mem_fraction_static` of what was free before.
    """
    for sharer in topology.roles:
        owners = [role for role in topology.roles if role.name == sharer.devices_of]
        for owner in owners:
            if not _is_bounded(topology, owner):
                yield _unbounded(topology, sharer, f"`{owner.name}` takes nearly all memory", Severity.ERROR)
            elif not _is_bounded(topology, sharer):
                yield _unbounded(
                    topology, sharer, f"`{sharer.name}` takes nearly all that is left", Severity.WARNING
                )


def _is_bounded(topology: Topology, role: Role) -> bool:
    return first_stated(topology, role, *_BOUNDS) is not None


def _unbounded(topology: Topology, sharer: Role, problem: str, severity: Severity) -> Diagnostic:
    consequence = (
        f"`{sharer.name}` finds no room for its KV pool and ends"
        if severity is Severity.ERROR
        else f"an instance of `{sharer.devices_of}` that restarts finds no room beside it"
    )
    return at_value(
        topology,
        (sharer.name, "devices_of"),
        "PD295",
        f"on shared devices {problem}",
        severity=severity,
        notes=(consequence, "`mem-fraction-static` is a share of what is free when an instance starts"),
        help="set `mem-fraction-static` in the `args` of both roles, such as 0.4 for each",
    )


RULES = (Rule(code="PD295", check=_memory_is_split),)
