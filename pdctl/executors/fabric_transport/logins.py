"""Shells of many machines: what they share is read once, and each jump host is logged in to once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from pdctl.executors.fabric_transport.config import SshConfig
from pdctl.executors.fabric_transport.connection import NodeConnection, Shared
from pdctl.executors.fabric_transport.shell import FabricShell
from pdctl.executors.known_hosts import KnownHosts
from pdctl.executors.ssh_faults import bad_settings
from pdctl.executors.ssh_login import Asked, asked_for, asked_for_hop, login_of
from pdctl.executors.ssh_operator import this_operator
from pdctl.topology.model import HostSsh, Ssh

MAX_HOPS = 8  # a jump host that is reached through itself must end somewhere


class FabricLogins:
    """May be used from several threads at a time. Nothing is read or connected before a shell is used."""

    def __init__(self, ssh: Ssh, environ: Mapping[str, str]) -> None:
        self._ssh = ssh
        self._operator = this_operator(environ)
        self._config = SshConfig(_expanded(ssh.config, self._operator.home), self._operator.home)
        self._shared = Shared(ssh=ssh, known_hosts=self._known_hosts)
        self._reading = threading.Lock()
        self._files: dict[tuple[str, ...], KnownHosts] = {}
        self._jumping = threading.Lock()
        self._jumps: dict[str, NodeConnection] = {}

    def shell(self, node: HostSsh, host: str) -> FabricShell:
        """`host` is what to connect to where the node's own settings name nothing else."""

        def connect() -> NodeConnection:
            return self._connection(asked_for(self._ssh, node, host), num_hops=0)

        return FabricShell(connect, command_timeout_s=self._ssh.command_timeout_s)

    def close(self) -> None:
        """Leave the jump hosts; each shell closes its own connection."""
        with self._jumping:
            for jump in self._jumps.values():
                jump.close()

    def _connection(self, asked: Asked, *, num_hops: int) -> NodeConnection:
        options = self._config.options(asked.host, user=asked.user, port=asked.port)
        login = login_of(asked, options, self._operator)
        via = None if login.proxy_jump is None else self._jump(login.proxy_jump, num_hops + 1)
        return NodeConnection(login, self._shared, via=via)

    def _jump(self, chain: str, num_hops: int) -> NodeConnection:
        """The connection to the last host of a chain, which all nodes behind it share."""
        if num_hops > MAX_HOPS:
            raise bad_settings(f"`{chain}` goes through more than {MAX_HOPS} jump hosts")
        with self._jumping:
            if (known := self._jumps.get(chain)) is not None:
                return known
        before, _, last = chain.rpartition(",")
        asked = asked_for_hop(self._ssh, last.strip(), before or None)
        made = self._connection(asked, num_hops=num_hops)
        with self._jumping:
            return self._jumps.setdefault(chain, made)

    def _known_hosts(self, files: tuple[str, ...]) -> KnownHosts:
        with self._reading:
            if files not in self._files:
                self._files[files] = KnownHosts.parse((_read(file) for file in files), files=files)
            return self._files[files]


def _read(file: str) -> str:
    """A file that can't be read knows no host: each is refused, with the file's name."""
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _expanded(path: str | None, home: str) -> str | None:
    return home + path[1:] if path is not None and path.startswith("~/") else path
