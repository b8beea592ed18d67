"""The variables of SGLang's processes as their nodes will have them: the one way in which rules read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pdctl.engines.sglang.environment import planned_env
from pdctl.inventory import Node, declared
from pdctl.plan.model import RoleKind
from pdctl.plan.placement import place
from pdctl.rules.base import Stated
from pdctl.rules.sglang.variables import OLD_PREFIX, PREFIX
from pdctl.topology.model import Host, Role, Topology
from pdctl.topology.source import DocumentPath

Variables = Mapping[str, Stated]

# The field that decides a planned variable. Those of a host are relative to it.
_FIELDS: Mapping[str, DocumentPath] = {
    "SGLANG_DISAGGREGATION_THREAD_POOL_SIZE": ("transfer", "threads"),
    "SGLANG_DISAGGREGATION_QUEUE_SIZE": ("transfer", "queues"),
    "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": ("transfer", "bootstrap_timeout_s"),
    "SGLANG_DISAGGREGATION_WAITING_TIMEOUT": ("transfer", "waiting_timeout_s"),
    "SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL": ("transfer", "heartbeat_interval_s"),
    "SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE": ("transfer", "heartbeat_max_failures"),
    "SGLANG_DISAGG_STAGING_BUFFER": ("transfer", "staging"),
    "SGLANG_DISAGG_STAGING_BUFFER_SIZE_MB": ("transfer", "staging", "buffer_mb"),
    "SGLANG_DISAGG_STAGING_POOL_SIZE_MB": ("transfer", "staging", "pool_mb"),
    "SGLANG_MOONCAKE_CUSTOM_MEM_POOL": ("transfer", "nvlink"),
    "MC_INTRANODE_NVLINK": ("transfer", "nvlink"),
    "MC_FORCE_MNNVL": ("transfer", "nvlink"),
    "NCCL_MNNVL_ENABLE": ("transfer", "nvlink"),
    "NCCL_CUMEM_ENABLE": ("transfer", "nvlink"),
    "MC_FORCE_TCP": ("transfer", "backend"),
    "SGLANG_DISAGGREGATION_NIXL_BACKEND": ("transfer", "nixl", "plugin"),
    "SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS": ("transfer", "nixl", "params"),
    "ENABLE_ASCEND_TRANSFER_WITH_MOONCAKE": ("transfer", "ascend", "with_mooncake"),
    "ASCEND_MF_STORE_URL": ("transfer", "ascend", "store_url"),
    "ASCEND_MF_TRANSFER_PROTOCOL": ("transfer", "ascend", "protocol"),
}
_HOST_FIELDS: Mapping[str, str] = {
    "SGLANG_HOST_IP": "address",
    "NCCL_SOCKET_IFNAME": "interface",
    "GLOO_SOCKET_IFNAME": "interface",
    "HCCL_SOCKET_IFNAME": "interface",
}


def process_variables(topology: Topology, role: Role, *names: str) -> tuple[Variables, ...]:
    """The named variables of the role's processes, as `Program.command` merges them, each with its place.

    One mapping for each different set of values; more than one where nodes have words of their own. What a
    process is without isn't in its mapping.
    """
    found: dict[tuple[Stated | None, ...], Variables] = {}
    for index in _telling_hosts(topology, role, names):
        own = dict(_of_process(topology, role, index, names))
        found.setdefault(tuple(own.get(name) for name in names), own)
    return tuple(found.values())


def _of_process(
    topology: Topology, role: Role, index: int | None, names: tuple[str, ...]
) -> Iterator[tuple[str, Stated]]:
    nodes = topology.cluster.nodes
    host = None if index is None or isinstance(nodes, int) else nodes[index]
    left_to_plan = any(name in _FIELDS or name in _HOST_FIELDS for name in names)
    # No rule compares stores: all processes of a plan get the same default.
    planned = planned_env(topology, role, _node(host), default_store=None) if left_to_plan else {}
    for name in names:
        written = (_written(topology, role, index, host, each) for each in (_old_name(name), name))
        stated = next((each for each in written if each is not None), None)
        if stated is None and name in planned:
            stated = Stated(value=planned[name], path=planned_at(name, index))
        if stated is not None:
            yield name, stated


def _written(
    topology: Topology, role: Role, index: int | None, host: Host | None, name: str
) -> Stated | None:
    """The document's own word for a variable, of the layer that wins."""
    if host is not None and name in host.env:
        return Stated(value=host.env[name], path=("cluster", "nodes", index or 0, "env", name))
    if name in role.env:
        return Stated(value=role.env[name], path=(role.name, "env", name))
    if name in topology.defaults.env:
        return Stated(value=topology.defaults.env[name], path=("defaults", "env", name))
    return None


def _old_name(name: str) -> str:
    """What SGLang copies over the variable where it is set; its own name for those of others."""
    return OLD_PREFIX + name.removeprefix(PREFIX) if name.startswith(PREFIX) else name


def planned_at(name: str, index: int | None) -> DocumentPath:
    """The field behind a planned variable of a process on the host of that index."""
    if name in _HOST_FIELDS:
        return ("cluster", "nodes", index or 0, _HOST_FIELDS[name])
    return _FIELDS[name]


def _node(host: Host | None) -> Node:
    """A node as far as it shapes variables; one that the document only counts is known by a name."""
    if host is None:
        return Node(name="node", address="node")
    return Node(name=host.name, address=host.address or host.name, interface=host.interface, env=host.env)


def _telling_hosts(topology: Topology, role: Role, names: tuple[str, ...]) -> tuple[int | None, ...]:
    """Indices of the hosts with processes of the role; None for all where hosts make no difference."""
    nodes = topology.cluster.nodes
    hosts = () if isinstance(nodes, int) else nodes
    if not any(_tells(host, names) for host in hosts):
        return (None,)
    slots = place(topology, declared(topology.cluster)).slots
    used = {slot.node.name for slot in slots if slot.role is RoleKind(role.name)}
    allowed = used or set(role.on) or {host.name for host in hosts}  # where nothing could be placed
    return tuple(index for index, host in enumerate(hosts) if host.name in allowed)


def _tells(host: Host, names: tuple[str, ...]) -> bool:
    is_named = any(name in host.env or _old_name(name) in host.env for name in names)
    return is_named or (host.interface is not None and not _HOST_FIELDS.keys().isdisjoint(names))
