"""How nodes are logged in to, as JSON and back. What is left open is left out; nothing in it is secret."""

from __future__ import annotations

from pdctl.fields import FieldError, Fields
from pdctl.plan.digest import Json
from pdctl.topology.model import HostSsh, Ssh, SshTransport

_TRANSPORTS: dict[str, SshTransport] = {"fabric": "fabric", "openssh": "openssh"}


def ssh_to_json(ssh: Ssh) -> dict[str, Json]:
    return _stated(
        {
            "user": ssh.user,
            "port": ssh.port,
            "identity_file": ssh.identity_file,
            "proxy_jump": ssh.proxy_jump,
            "config": ssh.config,
            "known_hosts": ssh.known_hosts,
            "transport": ssh.transport,
            "connect_timeout_s": ssh.connect_timeout_s,
            "command_timeout_s": ssh.command_timeout_s,
            "keepalive_s": ssh.keepalive_s,
            "fan_out": ssh.fan_out,
            "python": ssh.python,
            "state_dir": ssh.state_dir,
        }
    )


def ssh_from(fields: Fields) -> Ssh:
    transport = _TRANSPORTS.get(fields.text("transport"))
    if transport is None:
        raise FieldError(f"`transport` of {fields.what} is {fields.text('transport')!r:.80}")
    return Ssh(
        user=fields.optional_text("user"),
        port=fields.optional_integer("port"),
        identity_file=fields.optional_text("identity_file"),
        proxy_jump=fields.optional_text("proxy_jump"),
        config=fields.optional_text("config"),
        known_hosts=fields.optional_text("known_hosts"),
        transport=transport,
        connect_timeout_s=fields.number("connect_timeout_s"),
        command_timeout_s=fields.optional_number("command_timeout_s"),
        keepalive_s=fields.number("keepalive_s"),
        fan_out=fields.integer("fan_out"),
        python=fields.text("python"),
        state_dir=fields.optional_text("state_dir"),
    )


def host_ssh_to_json(login: HostSsh) -> dict[str, Json]:
    return _stated(
        {
            "host": login.host,
            "user": login.user,
            "port": login.port,
            "identity_file": login.identity_file,
            "proxy_jump": login.proxy_jump,
            "python": login.python,
            "state_dir": login.state_dir,
        }
    )


def host_ssh_from(fields: Fields) -> HostSsh:
    return HostSsh(
        host=fields.optional_text("host"),
        user=fields.optional_text("user"),
        port=fields.optional_integer("port"),
        identity_file=fields.optional_text("identity_file"),
        proxy_jump=fields.optional_text("proxy_jump"),
        python=fields.optional_text("python"),
        state_dir=fields.optional_text("state_dir"),
    )


def _stated(values: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in values.items() if value is not None}
