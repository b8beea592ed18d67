"""One kept connection to one machine: made when it is needed, made anew when it turns out dead.

fabric's own defaults would accept any host key, wait up to an hour for a channel, and break when two threads
open one connection; `tests/e2e/ssh/test_fabric.py` holds each cure.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, cast

import fabric  # pyright: ignore[reportMissingTypeStubs]
from paramiko import Channel, MissingHostKeyPolicy, PKey, SSHClient, SSHException, Transport
from paramiko.auth_strategy import AuthFailure
from paramiko.proxy import ProxyCommand
from paramiko.ssh_exception import BadAuthenticationType, ChannelException, ProxyCommandFailure

from pdctl.executors.fabric_transport.keys import KeyFiles, OperatorKeys
from pdctl.executors.fabric_transport.socket_to import connect_tcp
from pdctl.executors.fabric_transport.wire import ClockedPacketizer, ReadAheadSocket, swift_first
from pdctl.executors.known_hosts import HostKey, KnownHosts
from pdctl.executors.shell import UnreachableError
from pdctl.executors.ssh_faults import (
    cut_off,
    forwards_nothing,
    host_key_changed,
    host_key_revoked,
    host_key_unknown,
    hung_up,
    jump_failed,
    no_sessions,
    not_ssh,
    permission_denied,
    silent,
    unforwarded,
)
from pdctl.executors.ssh_login import Login
from pdctl.topology.model import Ssh

# What happens to a connection is told as the node's fault; without this it would also be printed.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

GREETING_TRIES = 6  # a server above its `MaxStartups` hangs up on newcomers; in a moment there is room again
_FIRST_PAUSE_S = 0.15


class _Connection(fabric.Connection):
    """Shares its configuration with others, so that its attributes must be its own.

    invoke would write one that the class lacks into the configuration, and empty that for a moment while
    others read it; and to find out, it lists all attributes each time, which made up a tenth of connecting.
    """

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


class Via(Protocol):
    """A jump host."""

    def forward(self, host: str, port: int, timeout_s: float) -> Channel: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all connections of one executor have in common; reading each file once is a third of the time."""

    ssh: Ssh
    known_hosts: Callable[[tuple[str, ...]], KnownHosts]
    keys: KeyFiles = field(default_factory=KeyFiles)
    config: fabric.Config = field(
        # Lazy, and with no SSH configuration: what fabric would read is worked out before, in `ssh_login`.
        default_factory=lambda: fabric.Config(lazy=True, overrides={"load_ssh_configs": False})
    )


class NodeConnection:
    """May be used from several threads at a time. Every step of connecting has `connect_timeout_s`."""

    def __init__(self, login: Login, shared: Shared, *, via: Via | None = None) -> None:
        self._login = login
        self._shared = shared
        self._via = via
        self._opening = threading.Lock()  # two openings of one fabric connection at a time would break it
        self._transport: Transport | None = None

    @property
    def user(self) -> str:
        return self._login.user

    def open_channel(self) -> Channel:
        """A session in which nothing was asked yet, so a dead connection costs a second attempt, no more."""
        kept = self._transport
        transport = self._opened()
        try:
            return self._session(transport)
        except (SSHException, EOFError, OSError) as error:
            transport.close()
            if transport is not kept:
                raise cut_off() from error
        transport = self._opened()
        try:
            return self._session(transport)
        except (SSHException, EOFError, OSError) as error:
            transport.close()
            raise cut_off() from error

    def is_answering(self) -> bool:
        """Whether the server still does more than acknowledge packets; asked on the connection that is."""
        transport = self._transport
        if transport is None or not transport.is_active():
            return False
        try:
            self._session(transport).close()
        except (SSHException, EOFError, OSError, UnreachableError):
            transport.close()
            return False
        return True

    def forward(self, host: str, port: int, timeout_s: float) -> Channel:
        """As a jump host: a connection from there to another machine."""
        transport = self._opened()
        try:
            return transport.open_channel(
                "direct-tcpip", dest_addr=(host, port), src_addr=("", 0), timeout=timeout_s
            )
        except ChannelException as error:
            raise (forwards_nothing() if error.code == 1 else unforwarded(port)) from error
        except (SSHException, EOFError, OSError) as error:
            transport.close()
            raise unforwarded(port) from error

    def close(self) -> None:
        with self._opening:
            if self._transport is not None:
                self._transport.close()

    def _session(self, transport: Transport) -> Channel:
        """A server may allow few sessions at a time (`MaxSessions`): wait for one to end."""
        timeout_s = self._shared.ssh.connect_timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return transport.open_session(timeout=timeout_s)
            except SSHException as error:
                # Of two refusals at a time paramiko names only one. A time-out has used up the deadline.
                if time.monotonic() < deadline and transport.is_active():
                    time.sleep(random.uniform(0.05, 0.2))
                elif isinstance(error, ChannelException):
                    raise no_sessions() from error
                else:
                    raise

    def _opened(self) -> Transport:
        with self._opening:
            if self._transport is None or not self._transport.is_active():
                self._transport = self._connected()
            return self._transport

    def _connected(self) -> Transport:
        pause_s = _FIRST_PAUSE_S
        for _ in range(GREETING_TRIES - 1):
            try:
                return self._connect_once()
            except _HungUpError:
                time.sleep(pause_s * random.uniform(0.5, 1.5))
                pause_s *= 1.6
        try:
            return self._connect_once()
        except _HungUpError as error:
            raise hung_up(self._login.port) from error

    def _connect_once(self) -> Transport:
        login, ssh = self._login, self._shared.ssh
        keys = OperatorKeys(login, self._shared.keys)
        known = self._shared.known_hosts(login.known_hosts)
        attempt = _Attempt(login=login, ssh=ssh, known=known, keys=keys, began_at=time.monotonic())
        connection = _Connection(
            host=login.host,
            user=login.user,
            port=login.port,
            config=self._shared.config,
            connect_kwargs={
                "sock": self._socket(),
                "auth_strategy": keys,
                "banner_timeout": ssh.connect_timeout_s,
                "auth_timeout": ssh.connect_timeout_s,
                "channel_timeout": ssh.connect_timeout_s,
                "transport_factory": attempt.transport,
            },
        )
        client = cast(SSHClient, connection.client)
        client.set_missing_host_key_policy(attempt)
        try:
            connection.open()
        except (SSHException, EOFError, OSError) as error:
            client.close()
            raise attempt.fault(error) from error
        finally:
            keys.close()
        transport = cast(Transport, client.get_transport())
        if not transport.is_authenticated():  # a second factor is wanted
            client.close()
            raise permission_denied(login.user, keys.tried)
        transport.set_keepalive(max(1, round(ssh.keepalive_s)))
        return transport

    def _socket(self) -> object:
        login, timeout_s = self._login, self._shared.ssh.connect_timeout_s
        if login.proxy_command is not None:
            return ProxyCommand(login.proxy_command)
        if self._via is None:
            connected = connect_tcp(
                login.host,
                login.port,
                config=login.config,
                family=login.address_family,
                timeout_s=timeout_s,
                keepalive_s=self._shared.ssh.keepalive_s,
            )
            return ReadAheadSocket(connected)
        try:
            return self._via.forward(login.host, login.port, timeout_s)
        except UnreachableError as error:
            raise jump_failed(login.proxy_jump or "", error) from error


class _HungUpError(Exception):
    """The server closed the connection before it said anything."""


class _HostKeyError(SSHException):
    def __init__(self, fault: UnreachableError) -> None:
        super().__init__(str(fault))
        self.fault = fault


@dataclass(slots=True, kw_only=True)
class _Attempt(MissingHostKeyPolicy):
    """One attempt to connect: checks the host key, and turns what went wrong into the node's fault."""

    login: Login
    ssh: Ssh
    known: KnownHosts
    keys: OperatorKeys
    began_at: float  # on the monotonic clock
    made: list[Transport] = field(default_factory=list[Transport])

    def transport(self, sock: object, **options: object) -> Transport:
        """Ask for a key of a type that is known, where there are several."""
        transport = Transport(sock, packetizer_class=ClockedPacketizer, **options)  # pyright: ignore[reportArgumentType]
        transport.handshake_timeout = self.ssh.connect_timeout_s
        offered = transport.get_security_options()
        offered.ciphers = swift_first(offered.ciphers)
        known = {key.type for key in self.known.keys_of(self.login.host_key_name)}
        preferred = [each for each in offered.key_types if _base_type(each) in known]
        offered.key_types = [*preferred, *(each for each in offered.key_types if each not in preferred)]
        self.made.append(transport)
        return transport

    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:
        """Called for every key, since the client itself is given no known ones."""
        name, files = self.login.host_key_name, self.login.known_hosts
        shown = HostKey(type=key.get_name(), blob=key.asbytes())
        known = self.known.keys_of(name)
        if self.known.is_revoked(shown):
            raise _HostKeyError(host_key_revoked(name, shown.type, shown.fingerprint))
        if shown in known:
            return
        if known:
            fingerprint = known[0].fingerprint
            raise _HostKeyError(
                host_key_changed(
                    name,
                    shown.type,
                    shown.fingerprint,
                    fingerprint,
                    self.known.files_of(name),
                    by_hand=self.login.by_hand,
                )
            )
        raise _HostKeyError(
            host_key_unknown(name, shown.type, shown.fingerprint, files, by_hand=self.login.by_hand)
        )

    def fault(self, error: Exception) -> UnreachableError | _HungUpError:
        login, timeout_s = self.login, self.ssh.connect_timeout_s
        if isinstance(error, _HostKeyError):
            return error.fault
        if isinstance(error, AuthFailure):
            return self._denied(error)
        if isinstance(error, ProxyCommandFailure):
            return jump_failed(login.proxy_command or "", UnreachableError("its command ended"))
        has_greeted = any(transport.remote_version for transport in self.made)
        if time.monotonic() - self.began_at >= timeout_s:
            return silent(login.port, timeout_s)
        if "protocol version" in str(error):
            return not_ssh(login.port)
        # A greeting and then nothing is a server above its limits as well.
        return UnreachableError(f"connecting failed: {error}") if has_greeted else _HungUpError()

    def _denied(self, error: AuthFailure) -> UnreachableError:
        outcomes = [each.result for each in error.result]
        if any("timeout" in str(each).lower() for each in outcomes):
            return silent(self.login.port, self.ssh.connect_timeout_s)
        if self.keys.stated is not None:
            return self.keys.stated
        if self.keys.unusable and not self.keys.tried:
            return self.keys.unusable[0]
        methods = [each.allowed_types for each in outcomes if isinstance(each, BadAuthenticationType)]
        return permission_denied(self.login.user, self.keys.tried, methods[-1] if methods else ())


def _base_type(algorithm: str) -> str:
    """The type of key behind a signature algorithm: RSA keys sign in several ways."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm
