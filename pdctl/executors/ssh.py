"""The executor `ssh`: each host of the topology is a machine of its own, with nothing but sshd and Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pdctl.executors.base import Executor
from pdctl.executors.link import NodeLink
from pdctl.executors.shell import Shell
from pdctl.executors.shimmed import ShimmedExecutor
from pdctl.executors.ssh_addresses import with_addresses
from pdctl.inventory import Inventory, Node, declared
from pdctl.topology.model import Cluster, HostSsh, Ssh

# A node's shell, from its own settings and what to connect to where they name nothing else.
ShellOf = Callable[[HostSsh, str], Shell]


def create(cluster: Cluster, environ: Mapping[str, str]) -> Executor:
    """Connects to nothing: a plan of stated addresses needs no node."""
    ssh = cluster.ssh or Ssh()
    shell_of = _transport(ssh, environ)
    nodes = declared(cluster).nodes
    links = {node.name: _link(node, ssh, shell_of) for node in nodes}

    def find_nodes(wanted: Cluster) -> Inventory:
        return with_addresses(wanted, _with_python(declared(wanted), ssh), links, fan_out=ssh.fan_out)

    return ShimmedExecutor(
        links=tuple(links.values()), link_of=links.get, find_nodes=find_nodes, fan_out=ssh.fan_out
    )


def _transport(ssh: Ssh, environ: Mapping[str, str]) -> ShellOf:
    """Imported here: each transport costs half a second, and most verbs of most topologies need neither."""
    if ssh.transport == "openssh":
        from pdctl.executors.openssh_transport.logins import OpensshLogins

        return OpensshLogins(ssh, environ).shell
    from pdctl.executors.fabric_transport.logins import FabricLogins

    return FabricLogins(ssh, environ).shell


def _link(node: Node, ssh: Ssh, shell_of: ShellOf) -> NodeLink:
    state_dir = node.ssh.state_dir or ssh.state_dir
    return NodeLink(
        name=node.name,
        shell=shell_of(node.ssh, node.address),
        python=node.ssh.python or ssh.python,
        root=None if state_dir is None else f"{state_dir.rstrip('/')}/run",
    )


def _with_python(inventory: Inventory, ssh: Ssh) -> Inventory:
    """Programs that the topology names no interpreter for run in the one that supervises them."""
    return Inventory(
        nodes=tuple(replace(node, python=node.ssh.python or ssh.python) for node in inventory.nodes)
    )
