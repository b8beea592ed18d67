"""How one node is logged in to: the topology's words laid over what the SSH configuration says. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from pdctl.executors.ssh_faults import bad_settings
from pdctl.topology.model import HostSsh, Ssh

SSH_PORT = 22
NONE = "none"  # as a jump host, proxy command or agent: there is none

# Options of one host by lower-case name, each value as `ssh -G HOST` prints it.
Options = Mapping[str, tuple[str, ...]]

_TOKEN = re.compile(r"%(.)")
_HOP = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:@]+))(?::(?P<port>[0-9]+))?/?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Who pdctl runs as, on which machine."""

    user: str
    home: str
    machine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the topology says of one login, before any SSH configuration."""

    host: str
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    proxy_jump: str | None = None
    known_hosts: str | None = None
    config: str | None = None  # file; None: those that `ssh` reads by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """One account on one machine, and the way there; all paths absolute."""

    host: str
    port: int
    user: str
    host_key_name: str  # what known_hosts calls the machine
    identity_files: tuple[str, ...]  # in the order to try them; those that don't exist are none
    stated_identity: str | None  # the one that the topology names: it has to be there
    identities_only: bool
    may_use_agent: bool
    known_hosts: tuple[str, ...]
    proxy_jump: str | None
    proxy_command: str | None
    address_family: str  # any, inet, inet6
    by_hand: str = ""  # the `ssh` command that logs in the same way, and asks about a host key
    config: str = "~/.ssh/config"  # where the operator says how hosts are reached


def asked_for(ssh: Ssh, node: HostSsh, host: str) -> Asked:
    """The topology's word on one node; `host` is what to connect to where it says nothing else."""
    return Asked(
        host=node.host or host,
        user=node.user or ssh.user,
        port=node.port or ssh.port,
        identity_file=node.identity_file or ssh.identity_file,
        proxy_jump=node.proxy_jump or ssh.proxy_jump,
        known_hosts=ssh.known_hosts,
        config=ssh.config,
    )


def asked_for_hop(ssh: Ssh, hop: str, before: str | None) -> Asked:
    """A jump host, `user@host:port`, behind those `before` it, if there are any.

    Its key is in the same file; the rest is its own, from the SSH configuration.
    """
    found = _HOP.fullmatch(hop)
    if found is None:
        raise bad_settings(f"`{hop}` is no jump host like `user@host:port`")
    return Asked(
        host=found["v6"] or found["host"],
        user=found["user"],
        port=int(found["port"]) if found["port"] else None,
        identity_file=ssh.identity_file,
        proxy_jump=before,
        known_hosts=ssh.known_hosts,
        config=ssh.config,
    )


def login_of(asked: Asked, options: Options, operator: Operator) -> Login:
    """Lay what is asked for over the options of its host. Raises `UnreachableError` for odd values."""
    host = _one(options, "hostname") or asked.host
    port = asked.port or _port(_one(options, "port"))
    user = asked.user or _one(options, "user") or operator.user
    expand = _Expansion(asked=asked.host, host=host, port=port, user=user, operator=operator)
    alias = _one(options, "hostkeyalias")
    stated = None if asked.identity_file is None else expand.path(asked.identity_file)
    configured = tuple(expand.path(path) for path in options.get("identityfile", ()) if path != NONE)
    identities = configured if stated is None else (stated, *(each for each in configured if each != stated))
    proxy_jump, proxy_command = _proxies(asked, options, expand)
    return Login(
        host=host,
        port=port,
        user=user,
        host_key_name=alias or _key_name(host, port),
        identity_files=identities,
        stated_identity=stated,
        identities_only=_one(options, "identitiesonly") == "yes",
        may_use_agent=_one(options, "identityagent") != NONE,
        known_hosts=_known_hosts(asked, options, expand),
        proxy_jump=proxy_jump,
        proxy_command=proxy_command,
        address_family=_one(options, "addressfamily") or "any",
        by_hand=shlex.join(_ssh_words(asked, expand)),
        config=asked.config or "~/.ssh/config",
    )


def _ssh_words(asked: Asked, expand: _Expansion) -> list[str]:
    """What a person types for the same login. Paths are absolute: `ssh` expands no `~` in most of them."""
    words = ["ssh"]
    words += ["-F", expand.path(asked.config)] if asked.config else []
    # An option of several paths: one with a space needs quotes within the word.
    known = [f'UserKnownHostsFile="{expand.path(asked.known_hosts)}"'] if asked.known_hosts else []
    words += ["-o", *known] if known else []
    words += ["-i", expand.path(asked.identity_file)] if asked.identity_file else []
    words += ["-o", f"ProxyJump={asked.proxy_jump}"] if asked.proxy_jump else []
    words += ["-p", str(asked.port)] if asked.port else []
    words += ["-l", asked.user] if asked.user else []
    return [*words, "-o", "StrictHostKeyChecking=ask", "--", asked.host, "true"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expansion:
    """Values of `~` and of the `%` tokens that ssh_config(5) allows in paths and proxy commands."""

    asked: str
    host: str
    port: int
    user: str
    operator: Operator

    def path(self, text: str) -> str:
        expanded = self.tokens(text)
        return self.operator.home + expanded[1:] if expanded.startswith("~/") or expanded == "~" else expanded

    def tokens(self, text: str) -> str:
        values = {
            "%": "%",
            "d": self.operator.home,
            "h": self.host,
            "k": self.host,
            "L": self.operator.machine.partition(".")[0],
            "l": self.operator.machine,
            "n": self.asked,
            "p": str(self.port),
            "r": self.user,
            "u": self.operator.user,
        }
        return _TOKEN.sub(lambda found: values.get(found[1], found[0]), text)


def _proxies(asked: Asked, options: Options, expand: _Expansion) -> tuple[str | None, str | None]:
    """At most one of jump hosts and proxy command: the topology's word ends the search."""
    if asked.proxy_jump is not None:
        return (None if asked.proxy_jump == NONE else asked.proxy_jump), None
    jump, command = _one(options, "proxyjump"), _one(options, "proxycommand")
    if jump is not None and jump != NONE:
        return expand.tokens(jump), None
    return None, (None if command is None or command.lower() == NONE else expand.tokens(command))


def _known_hosts(asked: Asked, options: Options, expand: _Expansion) -> tuple[str, ...]:
    users = (
        (asked.known_hosts,)
        if asked.known_hosts is not None
        else _words(options, "userknownhostsfile") or ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
    )
    machines = _words(options, "globalknownhostsfile") or ("/etc/ssh/ssh_known_hosts",)
    return tuple(expand.path(path) for path in (*users, *machines) if path != NONE)


def _key_name(host: str, port: int) -> str:
    name = host.lower()
    return name if port == SSH_PORT else f"[{name}]:{port}"


def _port(text: str | None) -> int:
    if text is None:
        return SSH_PORT
    if not text.isdigit():
        raise bad_settings(f"port `{text}` is no number")
    return int(text)


def _one(options: Options, name: str) -> str | None:
    values = options.get(name, ())
    return values[0] if values else None


def _words(options: Options, name: str) -> tuple[str, ...]:
    return tuple(word for value in options.get(name, ()) for word in value.split())
