"""The executor `ssh`: each host of the topology is a machine of its own, with nothing but sshd and Python."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from pdctl.executors.base import Executor
from pdctl.executors.link import NodeLink
from pdctl.executors.shell import Completed, LineStream, Shell
from pdctl.executors.shimmed import ShimmedExecutor
from pdctl.executors.ssh_addresses import with_addresses
from pdctl.inventory import Inventory, Node, declared
from pdctl.topology.model import Cluster, HostSsh, Ssh


def create(cluster: Cluster, environ: Mapping[str, str]) -> Executor:
    """Connects to nothing: a plan of stated addresses needs no node."""
    ssh = cluster.ssh or Ssh()
    transport = _Transport(ssh, environ)
    nodes = declared(cluster).nodes
    links = {node.name: _link(node, ssh, transport) for node in nodes}

    def find_nodes(wanted: Cluster) -> Inventory:
        return with_addresses(wanted, _with_python(declared(wanted), ssh), links, fan_out=ssh.fan_out)

    return ShimmedExecutor(
        links=tuple(links.values()), link_of=links.get, find_nodes=find_nodes, fan_out=ssh.fan_out
    )


class _Transport:
    """The shells of all hosts, by the transport that the topology names.

    Imported at the first use of a shell: each costs half a second, and most verbs reach no node.
    """

    def __init__(self, ssh: Ssh, environ: Mapping[str, str]) -> None:
        self._ssh = ssh
        self._environ = environ
        self._making = threading.Lock()
        self._logins: _Logins | None = None

    def logins(self) -> _Logins:
        with self._making:
            if self._logins is None:
                self._logins = self._made()
            return self._logins

    def _made(self) -> _Logins:
        if self._ssh.transport == "openssh":
            from pdctl.executors.openssh_transport.logins import OpensshLogins

            return OpensshLogins(self._ssh, self._environ)
        from pdctl.executors.fabric_transport.logins import FabricLogins

        return FabricLogins(self._ssh, self._environ)


class _Logins(Protocol):
    def shell(self, node: HostSsh, host: str) -> Shell:
        """`host` is what to connect to where the node's own settings name nothing else."""
        ...


class _LateShell:
    """One host's shell, made when it is first used."""

    def __init__(self, make: Callable[[], Shell]) -> None:
        self._make = make
        self._making = threading.Lock()
        self._made: Shell | None = None

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        return self._shell().run(argv, stdin=stdin, timeout_s=timeout_s)

    def put(self, path: str, content: bytes) -> None:
        self._shell().put(path, content)

    def follow(self, argv: Sequence[str], *, stdin: bytes = b"") -> LineStream:
        return self._shell().follow(argv, stdin=stdin)

    def _shell(self) -> Shell:
        with self._making:
            if self._made is None:
                self._made = self._make()
            return self._made


def _link(node: Node, ssh: Ssh, transport: _Transport) -> NodeLink:
    state_dir = node.ssh.state_dir or ssh.state_dir
    return NodeLink(
        name=node.name,
        shell=_LateShell(lambda: transport.logins().shell(node.ssh, node.address)),
        python=node.ssh.python or ssh.python,
        root=None if state_dir is None else f"{state_dir.rstrip('/')}/run",
    )


def _with_python(inventory: Inventory, ssh: Ssh) -> Inventory:
    """Programs that the topology names no interpreter for run in the one that supervises them."""
    return Inventory(
        nodes=tuple(replace(node, python=node.ssh.python or ssh.python) for node in inventory.nodes)
    )
