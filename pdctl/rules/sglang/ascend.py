"""Ascend's store, where all ranks meet: the first prefill instance opens it, so it must be on that node."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic
from pdctl.engines.sglang.transfer import store_place
from pdctl.inventory import declared
from pdctl.plan.placement import place
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.rules.network import is_loopback, is_unspecified
from pdctl.topology.model import Topology

_PLACE = ("transfer", "ascend", "store_url")


def _the_store_is_at_prefill(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/disaggregation/ascend/transfer_engine.py. An address of no node may be another network's."""
    url = topology.transfer.ascend.store_url
    if topology.transfer.backend != "ascend" or topology.transfer.ascend.with_mooncake or url is None:
        return
    address, _ = store_place(url)
    why = _why_unreachable(topology, address)
    if why is not None:
        yield at_value(
            topology,
            _PLACE,
            "PD424",
            f"`{address}` {why}",
            notes=("the first prefill instance opens the store, and all other ranks connect to it",),
            help="leave `store_url` out: the plan then has one at that instance",
        )


def _why_unreachable(topology: Topology, address: str) -> str | None:
    nodes = declared(topology.cluster).nodes
    if len(nodes) > 1 and is_loopback(address):
        return f"means another machine on each of the {len(nodes)} nodes"
    if is_unspecified(address):
        return "is where a server may listen, and nowhere to connect to"
    owner = next((node for node in nodes if address in (node.address, node.name)), None)
    slots = place(topology, declared(topology.cluster)).slots
    leader = next((slot for slot in slots if slot.role == "prefill" and slot.index == 0), None)
    if owner is None or leader is None or owner.name == leader.node.name:
        return None
    return f"is `{owner.name}`, and the first prefill instance is on `{leader.node.name}`"


RULES = (Rule(code="PD424", check=_the_store_is_at_prefill),)
