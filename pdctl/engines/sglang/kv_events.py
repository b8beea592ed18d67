"""Ports on which schedulers of an instance publish KV events and loads, and the flag that says so.

Every attention DP rank, or every copy of the model, publishes by itself, `rank` ports behind the first
(`disaggregation/kv_events.py`, `is_kv_publisher_rank` and `offset_endpoint_port`), on the node where its
first rank runs: followers have sockets of their own. Replays are asked for at another family of as many
ports, and so are loads (`resolve_load_pub_range`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pdctl.plan.layout import Slot
from pdctl.plan.ports import HIGHEST_PORT, Companion, PortNeed
from pdctl.topology.model import JsonArg, Role, Topology

CONFIG_FLAG, LOADS_FLAG = "kv-events-config", "load-publish-endpoint"

_DEFAULT_ENDPOINT = "tcp://*:5557"  # of `publisher: zmq`
_WILDCARDS = frozenset({"*", "0.0.0.0", "[::]"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """As many neighbouring ports as there are publishers."""

    name: str
    first: int
    path: tuple[str, ...]


def kv_event_needs(role: Role, topology: Topology) -> tuple[PortNeed, ...]:
    """What the role's own field asks for, or else the flags that it passes on."""
    nodes = publisher_nodes(role)
    if role.kv_events_port is None:
        return tuple(_need(family, nodes) for family in _stated_families(role, topology, len(nodes)))
    loads = _stated(role, topology, LOADS_FLAG)
    has_loads = loads is not None and str(loads[1]).strip().lower() == "auto"
    width = len(nodes) * (2 if has_loads else 1)
    companions = [*_companions("kv-events", nodes, 0)]
    if has_loads:
        companions += [
            Companion(name="kv-loads", offset=len(nodes)),
            *_companions("kv-loads", nodes, len(nodes)),
        ]
    return (
        PortNeed(
            name="kv-events",
            base=role.kv_events_port,
            stride=width,
            requested=True,
            path=(role.name, "kv_events_port"),
            companions=tuple(companions),
        ),
    )


def kv_event_flags(role: Role, leader: Slot) -> list[str]:
    """`*` is this node's every address: those who listen may be elsewhere."""
    if role.kv_events_port is None:
        return []
    endpoint = f"tcp://*:{leader.endpoint('kv-events').port}"
    config = {"publisher": "zmq", "topic": "kv-events", "endpoint": endpoint}
    return [f"--{CONFIG_FLAG}", json.dumps(config, separators=(",", ":"))]


def publisher_nodes(role: Role) -> tuple[int, ...]:
    """The node rank of each publisher, by its number.

    Only the first pipeline stage publishes; `entrypoints/engine.py`, `_calculate_rank_ranges`, says which
    nodes have it.
    """
    parallel = role.parallel
    if parallel.attn_dp == 1:
        return (0,) * parallel.dp  # copies lie on one node
    nodes_per_stage = max(1, (role.nodes or 1) // parallel.pp)
    ranks_per_node = max(1, parallel.tp // nodes_per_stage)
    width = parallel.tp // parallel.attn_dp
    return tuple(rank * width // ranks_per_node for rank in range(parallel.attn_dp))


def is_bindable(endpoint: str) -> bool:
    """Whether SGLang listens there: on all addresses of its node (`parse_bindable_tcp`)."""
    host = endpoint.removeprefix("tcp://").rpartition(":")[0]
    return _port(endpoint) is not None and host in _WILDCARDS


def _need(family: _Family, nodes: tuple[int, ...]) -> PortNeed:
    """Told by a flag, every instance on a node gets the same numbers: the second one clashes, as it would."""
    return PortNeed(
        name=family.name,
        base=family.first,
        stride=0,
        requested=True,
        path=family.path,
        companions=tuple(_companions(family.name, nodes, 0)),
    )


def _companions(name: str, nodes: tuple[int, ...], offset: int) -> Iterator[Companion]:
    """Those behind the first, which is its leader's."""
    for rank, node_rank in enumerate(nodes[1:], start=1):
        yield Companion(name=f"{name}-{rank}", offset=offset + rank, node_rank=node_rank)


def _stated_families(role: Role, topology: Topology, num_publishers: int) -> Iterator[_Family]:
    stated = _stated(role, topology, CONFIG_FLAG)
    config = None if stated is None else _mapping(stated[1])
    if stated is None or config is None or config.get("publisher") != "zmq":
        return
    path, endpoint = stated[0], str(config.get("endpoint", _DEFAULT_ENDPOINT))
    events = _port(endpoint)
    if events is not None and _is_bound(endpoint, config):
        yield _Family(name="kv-events", first=events, path=path)
    replays = _port(str(config.get("replay_endpoint")))
    if replays is not None:
        yield _Family(name="kv-replays", first=replays, path=path)
    loads = _stated(role, topology, LOADS_FLAG)
    if loads is not None and events is not None:
        first = _loads_port(str(loads[1]).strip(), events, replays, num_publishers)
        if first is not None:
            yield _Family(name="kv-loads", first=first, path=loads[0])


def _loads_port(stated: str, events: int, replays: int | None, num_publishers: int) -> int | None:
    """`resolve_load_pub_range`: `auto` packs loads behind the events, or behind replays in their way."""
    if stated.lower() != "auto":
        return _port(stated)
    first = events + num_publishers
    if replays is not None and abs(first - replays) < num_publishers:
        return replays + num_publishers
    return first


def _stated(role: Role, topology: Topology, flag: str) -> tuple[tuple[str, ...], object] | None:
    """Where the document has the flag for this role, and what it says."""
    for name, args in ((role.name, role.args), ("defaults", topology.defaults.args)):
        if flag in args:
            return None if args[flag] is None else ((name, "args", flag), args[flag])
    return None


def _mapping(value: object) -> Mapping[str, Any] | None:
    """None for text that is no JSON mapping, which SGLang itself refuses at start."""
    try:
        parsed: object = json.loads(value.text if isinstance(value, JsonArg) else str(value))
    except ValueError:
        return None
    return cast(Mapping[str, Any], parsed) if isinstance(parsed, dict) else None


def _is_bound(endpoint: str, config: Mapping[str, Any]) -> bool:
    """A publisher connects to an address that is no wildcard, unless 0.5.22 or later is told otherwise."""
    stated: object = config.get("bind")
    return stated if isinstance(stated, bool) else is_bindable(endpoint)


def _port(endpoint: str) -> int | None:
    number = endpoint.rpartition(":")[2]
    if not endpoint.startswith("tcp://") or not number.isascii() or not number.isdecimal():
        return None
    return int(number) if 0 < int(number[:6]) <= HIGHEST_PORT else None
