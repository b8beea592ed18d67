"""Who must reach whom, and on which port: the calls of a deployment that runs, between its nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pdctl.plan.model import Instance, LaunchPlan, RoleKind

ANY_PORT = 0  # one that the kernel chooses, as the data plane's
_ENGINES = (RoleKind.PREFILL, RoleKind.DECODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One node that must be able to connect to a port of another."""

    caller: str  # names of nodes
    callee: str
    port: int  # of the callee; `ANY_PORT`: any high one
    purpose: str  # `http of prefill-0`; for any port `data`


def calls_of(plan: LaunchPlan) -> tuple[Call, ...]:
    """Each once. Nodes of a few roles call many others, but no node calls all for every port."""
    found = (*_to_http(plan), *_to_bootstrap(plan), *_to_leaders(plan), *_data(plan))
    return tuple(dict.fromkeys(call for call in found if call.caller != call.callee))


def _to_http(plan: LaunchPlan) -> Iterator[Call]:
    """The router sends requests to every instance and watches its health."""
    for instance in _engines(plan):
        for caller in _nodes(plan, plan.router):
            yield _call(plan, caller, instance, "http")


def _to_bootstrap(plan: LaunchPlan) -> Iterator[Call]:
    """Prefill ranks register there, decode ranks ask it where the prefill ranks are."""
    prefills = [each for each in plan.instances if each.bootstrap is not None]
    decodes = [each for each in plan.instances if each.role is RoleKind.DECODE]
    for prefill in prefills:
        for caller in (prefill, *decodes):
            yield from (_call(plan, node, prefill, "bootstrap") for node in _nodes(plan, caller))


def _to_leaders(plan: LaunchPlan) -> Iterator[Call]:
    """The ranks of an instance find each other at its leader."""
    for instance in _engines(plan):
        if _port(plan, instance, "dist-init") is not None:
            yield from (_call(plan, node, instance, "dist-init") for node in _nodes(plan, instance))


def _data(plan: LaunchPlan) -> Iterator[Call]:
    """KV cache and its control messages go between all prefill and decode nodes, on ports drawn at start."""
    by_role = {
        role: dict.fromkeys(
            node for each in plan.instances if each.role is role for node in _nodes(plan, each)
        )
        for role in _ENGINES
    }
    for prefill in by_role[RoleKind.PREFILL]:
        for decode in by_role[RoleKind.DECODE]:
            yield Call(caller=prefill, callee=decode, port=ANY_PORT, purpose="data")
            yield Call(caller=decode, callee=prefill, port=ANY_PORT, purpose="data")


def _call(plan: LaunchPlan, caller: str, instance: Instance, name: str) -> Call:
    """To the leader's port of that name, which the caller has made sure of or every plan has."""
    port = _port(plan, instance, name)
    assert port is not None, f"{instance.id} has no {name} port"
    return Call(
        caller=caller, callee=_nodes(plan, instance)[0], port=port, purpose=f"{name} of {instance.id}"
    )


def _port(plan: LaunchPlan, instance: Instance, name: str) -> int | None:
    leader = plan.process(instance.process_ids[0])
    return None if leader is None else leader.port(name)


def _nodes(plan: LaunchPlan, instance: Instance) -> tuple[str, ...]:
    """Leader's first, each once."""
    members = (plan.process(each) for each in instance.process_ids)
    return tuple(dict.fromkeys(each.node for each in members if each is not None))


def _engines(plan: LaunchPlan) -> tuple[Instance, ...]:
    return tuple(each for each in plan.instances if each.role in _ENGINES)
