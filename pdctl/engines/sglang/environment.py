"""The environment of one process: what follows from the plan and from fields, and what the document states.

`process_env` is the only place where the layers are put together; rules hold the document's own variables
against the part that is `planned_env`.
"""

from __future__ import annotations

from pdctl.engines.sglang.devices import is_ascend
from pdctl.engines.sglang.release import Release
from pdctl.engines.sglang.transfer import transfer_env
from pdctl.flags import merged_env
from pdctl.inventory import Node
from pdctl.topology.model import Env, Role, Topology


def process_env(
    topology: Topology, role: Role, node: Node, *, placed: Env, default_store: str | None
) -> dict[str, str]:
    """Later layers win: what is planned, `defaults`, the role, the node.

    `placed` has the devices and ports that the process was given, `default_store` is where Ascend's ranks
    meet if nothing is stated.
    """
    planned = planned_env(topology, role, node, default_store=default_store)
    return merged_env(placed, planned, topology.defaults.env, role.env, node.env)


def planned_env(topology: Topology, role: Role, node: Node, *, default_store: str | None) -> dict[str, str]:
    """What the plan and the document's fields set, without the devices."""
    release = Release(version=topology.engine.version)
    return {
        **_network_env(topology, role, node),
        **transfer_env(role, topology, release, default_store=default_store),
    }


def _network_env(topology: Topology, role: Role, node: Node) -> Env:
    """What the ranks tell their peers about where they are; left to itself, SGLang asks the default route."""
    env = {} if node.ip is None else {"SGLANG_HOST_IP": node.ip}
    if node.interface is not None:
        env |= {"NCCL_SOCKET_IFNAME": node.interface, "GLOO_SOCKET_IFNAME": node.interface}
        if is_ascend(topology, role):
            env |= {"HCCL_SOCKET_IFNAME": node.interface}
    return env
